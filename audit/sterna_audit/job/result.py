"""What a run says at its end: one JSON object of at most 4,000 bytes, which fits into the status of a pod.

Names that clients chose stand in it, and may be as long as anybody likes: texts are cut, and lists hold as much as
fits, the most important first. It is whole JSON always, and `omitted` counts what was left out.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sterna_audit.audits import running
from sterna_audit.audits.findings import VERDICTS
from sterna_audit.audits.running import Run

BYTES_MAX = 4_000
_WORST_MAX = 50
_ERROR_BYTES = 400
_TEXT_BYTES = 160
_NOTE_BYTES = 300
# For the counts of what was left out, which are known last.
_OMITTED_BYTES = 90

State = Literal["new", "there already", "failed"]
Outcome = Literal["violated", "not provable", "in flight", "ok", "failed"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a broker's snapshot.

    Attributes:
        broker: its name.
        state: taken by this run now, or by it before; or not, and `error` says why.
        cut: its number; 0 where there is none.
        error: empty where there is one.
        notes: what somebody should know of it.
    """

    broker: str
    state: State
    cut: int = 0
    error: str = ""
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, Any]:
        """As the JSON has it."""
        told: dict[str, Any] = {"broker": self.broker, "state": self.state}
        if self.cut:
            told["cut"] = self.cut
        if self.error:
            told["error"] = clipped(self.error, _TEXT_BYTES)
        return told


@dataclass(frozen=True)
class Result:
    """A run that has ended.

    Attributes:
        run: its name.
        verdict: of the audits, or `failed`; then `error` says why.
        started_ms: milliseconds since 1970.
        ended_ms: the same.
        taken: of each broker what became of its snapshot; none: the run takes none.
        done: what the audits found; None: they did not run.
        report: where the report is; empty: there is none.
        error: why it failed.
        notes: what somebody should know besides.
    """

    run: str
    verdict: Outcome
    started_ms: int
    ended_ms: int
    taken: Sequence[Taken] = ()
    done: Run | None = None
    report: str = ""
    error: str = ""
    notes: Sequence[str] = field(default=())

    def encoded(self) -> bytes:
        """As JSON of at most `BYTES_MAX` bytes."""
        results = self.done.results if self.done is not None else ()
        told: dict[str, Any] = {
            "run": self.run,
            "verdict": self.verdict,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "counts": {verdict: sum(one.counts.get(verdict, 0) for one in results) for verdict in VERDICTS},
        }
        if self.report:
            told["report"] = self.report
        if self.error:
            told["error"] = clipped(self.error, _ERROR_BYTES)
        lists: dict[str, list[dict[str, Any] | str]] = {
            "snapshots": [one.values() for one in sorted(self.taken, key=lambda one: one.state != "failed")],
            "audits": [
                {"name": one.name, "verdict": one.verdict, "violated": one.counts.get("violated", 0)} for one in results
            ],
            "worst": list(_worst(self.done)),
            "notes": [clipped(one, _NOTE_BYTES) for one in self.notes],
        }
        return _fitted(told, lists)


def _worst(done: Run | None) -> Iterable[dict[str, Any]]:
    if done is None:
        return
    for name, finding in running.worst(done, _WORST_MAX):
        yield {
            "audit": name,
            "verdict": finding.verdict,
            "what": clipped(finding.what, _TEXT_BYTES),
            "broker": clipped(finding.broker, _TEXT_BYTES),
            "object": clipped(finding.object, _TEXT_BYTES),
            "message": clipped(finding.message, _TEXT_BYTES),
        }


def _fitted(told: dict[str, Any], lists: Mapping[str, Sequence[dict[str, Any] | str]]) -> bytes:
    """As much of the lists as fits, in this order: one finding, what failed, the audits, then the rest in turns."""
    told |= {name: [] for name in lists}
    left = BYTES_MAX - _OMITTED_BYTES - len(compact(told))
    # At which turn an item is due, so that no list takes the room of all others.
    order = [
        (0 if name == "worst" and place == 0 else place * (1 if name in ("audits", "worst") else 2) + 1, name, item)
        for name, items in lists.items()
        for place, item in enumerate(items)
    ]
    full: set[str] = set()
    omitted: dict[str, int] = {}
    for _, name, item in sorted(order, key=lambda one: one[0]):
        size = len(compact(item)) + 1
        # What comes after something that has no room would be out of order.
        if name in full or size > left:
            full.add(name)
            omitted[name] = omitted.get(name, 0) + 1
            continue
        told[name].append(item)
        left -= size
    if omitted:
        told["omitted"] = omitted
    return compact({name: value for name, value in told.items() if name != "notes" or value})


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    # What is no text of Unicode cannot be written as one.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def clipped(text: str, most: int) -> str:
    """A text that takes at most so many bytes of JSON, without its quotes."""
    if len(compact(text)) - 2 <= most:
        return text
    left = most - len("…".encode())
    for place, letter in enumerate(text):
        left -= len(compact(letter)) - 2
        if left < 0:
            return f"{text[:place]}…"
    return text
