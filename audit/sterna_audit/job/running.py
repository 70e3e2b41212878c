"""Goes through a run: snapshots, audits over them, what is too old, and at the very end what came of it.

Broken off anywhere and repeated under the same name it goes on: snapshots that it has are not taken again, audits are
pure and run anew, and a run that has ended is only told again. A run that failed has not ended.
"""

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException

from sterna_audit import auditing, surroundings
from sterna_audit.auditing import Auditing, OutError, Tell
from sterna_audit.audits.findings import VERDICTS
from sterna_audit.audits.history import Bound, HistoryError
from sterna_audit.audits.running import Run
from sterna_audit.java import JavaError
from sterna_audit.job import taking
from sterna_audit.job.plan import Judging, Plan
from sterna_audit.job.result import Outcome, Result, Taken
from sterna_audit.job.runs import Runs
from sterna_audit.snapshots import pruning
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.pruning import PruningError, Retention, parse_keep
from sterna_audit.snapshots.stores import StoreError
from sterna_audit.spark import SparkError, first_line


@dataclass
class _Told:
    """What is known of the run so far."""

    taken: Sequence[Taken] = ()
    done: Run | None = None
    report: str = ""
    error: str = ""
    notes: list[str] = field(default_factory=list)


class Running:
    """One run.

    Args:
        plan: the run.
        tell: hears how far it is.
    """

    def __init__(self, plan: Plan, tell: Tell) -> None:
        self._plan = plan
        self._tell = tell
        self._runs = Runs(plan.config.results, plan.config.job)

    def ended(self) -> dict[str, Any] | None:
        """What came of the run when it was done before; None: it was not.

        Raises:
            StoreError: the store of results does not answer.
        """
        return self._runs.result(self._plan.run)

    def run(self) -> Result:
        """Does all that the file asks for, and keeps what came of it.

        Raises:
            StoreError: the store of results does not answer.
        """
        began_ms = self._runs.begin(self._plan.run)
        told = _Told()
        try:
            self._go(told, began_ms)
        except (HistoryError, JavaError, OutError, SparkError, StoreError) as error:
            told.error = " ".join(str(error).split())
        except PySparkException as error:
            told.error = f"Spark: {first_line(error)}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the run ends with a result that says so
            self._tell("".join(traceback.format_exception(error)).rstrip())
            told.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
        result = self._result(told, began_ms)
        self._runs.end(self._plan.run, result.encoded())
        return result

    def _go(self, told: _Told, began_ms: int) -> None:
        plan = self._plan
        if plan.taking is not None:
            told.taken = asyncio.run(taking.take(plan, plan.taking, began_ms, self._tell))
        else:
            told.taken = [taking.newest(plan, broker) for broker in plan.config.brokers]
        told.notes += [note for one in told.taken for note in one.notes]
        missing = [one for one in told.taken if one.state == "failed"]
        if missing and (plan.judging is None or len(missing) == len(told.taken)):
            others = f", and of {len(missing) - 1} others" if len(missing) > 1 else ""
            told.error = f"there is no snapshot of {missing[0].broker}{others}: {missing[0].error}"
            return
        if plan.judging is not None:
            told.done, told.report = self._judged(plan.judging, told.taken)
            failed = [one for one in told.done.results if one.error]
            if failed and told.done.verdict != "violated":
                told.error = f"the audit {failed[0].name} did not come to its end: {failed[0].error}"
                return
            told.notes += [f"the audit {one.name} did not come to its end: {one.error}" for one in failed]
        self._prune(told)

    def _judged(self, judging: Judging, taken: Sequence[Taken]) -> tuple[Run, str]:
        """The audits' findings, and where the report is: of the brokers that have a snapshot of this run, up to it."""
        plan = self._plan
        ends = {Place(plan.config.cluster, one.broker): Bound(cut=one.cut) for one in taken if one.cut}
        out = self._runs.out(plan.run)
        what = Auditing(
            audits=judging.audits,
            snapshots=plan.snapshots,
            places=list(ends),
            verifier=judging.verifier,
            out=out,
            ledgers=judging.ledgers,
            manifests=judging.manifests,
            start=judging.start,
            end=ends,
        )
        return auditing.run(what, judging.where, self._tell), auditing.report(out)

    def _prune(self, told: _Told) -> None:
        """Removes what is too old; what is in the way is a note, since the verdict is there."""
        plan, keep = self._plan, self._plan.config.keep
        if keep.snapshots and plan.taking is not None:
            retention = Retention(parse_keep(keep.snapshots))
            for place in map(plan.place, plan.config.brokers):
                try:
                    pruned = pruning.prune(
                        plan.snapshots, place, retention, plan.taking.writing.signer, plan.taking.verifier
                    )
                except (PruningError, StoreError) as error:
                    told.notes.append(f"{place}: {error}")
                    continue
                if pruned.cuts:
                    self._tell(f"{place}: removed {len(pruned.cuts)} snapshots, up to cut {pruned.cuts[-1]}")
                told.notes += [f"not removed, nor anything after it: {finding}" for finding in pruned.findings]
        if keep.results is not None:
            try:
                self._runs.prune(keep.results, plan.run, self._tell)
            except StoreError as error:
                told.notes.append(f"old results are still there: {error}")

    def _result(self, told: _Told, began_ms: int) -> Result:
        for note in told.notes:
            self._tell(note)
        return Result(
            run=self._plan.run,
            verdict=_verdict(told),
            started_ms=began_ms,
            ended_ms=surroundings.wall_ms(),
            taken=told.taken,
            done=told.done,
            report=told.report,
            error=told.error,
            notes=told.notes,
        )


def _verdict(told: _Told) -> Outcome:
    """`failed`, or the worst of the audits; that a snapshot is missing is not provable at best."""
    verdict: Outcome = told.done.verdict if told.done is not None else "ok"
    # What was found to be violated stays so, whatever failed besides.
    if told.error and verdict != "violated":
        return "failed"
    is_missing = any(one.state == "failed" for one in told.taken)
    return min(verdict, "not provable", key=VERDICTS.index) if is_missing else verdict
