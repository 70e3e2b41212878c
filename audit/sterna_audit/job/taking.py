"""Takes a run's snapshots: one of each broker, a few at once, and none twice however often the run is repeated.

A snapshot is the run's own if its manifest says so (`Plan.marks`). What a run that was broken off has left is found
again: a manifest that is there, whether the broker heard of it or not, or a cut that waits at the broker.
"""

import asyncio

from sterna.admin import Admin
from sterna.errors import ConflictError, SternaError

from sterna_audit import broker_source
from sterna_audit.auditing import Tell
from sterna_audit.broker_source import BrokerSource, held_cut
from sterna_audit.exporting import Exported, ExportError, export
from sterna_audit.job.config import Broker
from sterna_audit.job.plan import Plan, Taking
from sterna_audit.job.result import Taken
from sterna_audit.snapshots import reading
from sterna_audit.snapshots.manifests import Manifest
from sterna_audit.snapshots.stores import StoreError
from sterna_audit.snapshots.writing import RowsError

_AT_ONCE = 4
# One that waited since before the run, one that others took meanwhile, and ours.
_ROUNDS = 4


async def take(plan: Plan, taking: Taking, began_ms: int, tell: Tell) -> list[Taken]:
    """Snapshots of all brokers, in their order. That one cannot be had keeps no other from being taken.

    Args:
        plan: the run's.
        taking: how.
        began_ms: when the run began for the first time: a cut that waits since before is not the run's own.
        tell: hears of each.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(broker: Broker) -> Taken:
        async with slots:
            taken = await _Taker(plan, taking, broker, began_ms).take()
            tell(f"{broker.name}: {f'cut {taken.cut}, ' if taken.cut else ''}{taken.state}{_why(taken)}")
            return taken

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(broker)) for broker in plan.config.brokers]
    return [task.result() for task in tasks]


def newest(plan: Plan, broker: Broker) -> Taken:
    """A broker's newest snapshot, for a run that takes none.

    Raises:
        StoreError: the store does not answer.
    """
    place = plan.place(broker)
    for number in reversed(reading.numbers(plan.snapshots, place)):
        if reading.find(plan.snapshots, place, number).manifest is not None:
            return Taken(broker.name, "there already", number)
    return Taken(broker.name, "failed", error=f"there are no snapshots of {place} in {plan.snapshots.uri}")


def _why(taken: Taken) -> str:
    return "".join(f": {text}" for text in (taken.error, *taken.notes) if text)


class _Taker:
    """Takes the run's snapshot of one broker."""

    def __init__(self, plan: Plan, taking: Taking, broker: Broker, began_ms: int) -> None:
        self._plan = plan
        self._taking = taking
        self._broker = broker
        self._place = plan.place(broker)
        self._began_ms = began_ms

    async def take(self) -> Taken:
        try:
            there = await asyncio.to_thread(self._there)
            if there is not None:
                return Taken(self._broker.name, "there already", there.cut.number, notes=await self._told_again(there))
            async with self._plan.connect(self._broker) as client:
                return await self._take(client)
        except (ExportError, RowsError, SternaError, StoreError) as error:
            return Taken(self._broker.name, "failed", error=" ".join(str(error).split()))

    def _there(self) -> Manifest | None:
        """The manifest of the snapshot that this run has taken, the newest first; faulty ones are nobody's."""
        store = self._plan.snapshots
        for number in reversed(reading.numbers(store, self._place)):
            found = reading.find(store, self._place, number, self._taking.verifier)
            if found.manifest is not None and not found.findings and self._is_ours(found.manifest):
                return found.manifest
        return None

    def _is_ours(self, manifest: Manifest) -> bool:
        return self._plan.marks.items() <= manifest.options.items()

    async def _told_again(self, manifest: Manifest) -> tuple[str, ...]:
        """The broker is told of a snapshot of which it may not have heard; what is in the way of that."""
        try:
            async with (
                self._plan.connect(self._broker) as client,
                client.hold_cut(broker_source.asked(manifest.cut)) as held,
            ):
                await held.confirm(bytes.fromhex(manifest.sha256))
        except ConflictError:
            # It does not wait any more: the broker has heard of it.
            return ()
        except SternaError as error:
            return (f"{self._broker.name} may not know yet that cut {manifest.cut.number} is kept: {error}",)
        return ()

    async def _take(self, client: Admin) -> Taken:
        is_fresh = False
        for _ in range(_ROUNDS):
            async with held_cut(client, wait_s=self._taking.wait_s) as held:
                cut = held.cut
                source = BrokerSource(held)
                if (place := (await source.cut()).place) != self._place:
                    raise ExportError(f"the broker says that it is {place}, and the file that it is {self._place}")
                # Another process of the same run may have been faster, as long as this one waited for the cut.
                if (there := await asyncio.to_thread(self._there)) is not None:
                    return Taken(self._broker.name, "there already", there.cut.number)
                # Clocks decide only whether one snapshot more is taken: after the first the cut is new for certain.
                is_ours = is_fresh or cut.time_ms >= self._began_ms
                exported = await export(
                    source,
                    self._plan.snapshots,
                    self._taking.writing,
                    verifier=self._taking.verifier,
                    extra_options=self._plan.marks if is_ours else None,
                )
            if self._is_ours(exported.manifest):
                return self._taken(exported)
            is_fresh = True
        raise ExportError("others take one snapshot of this broker after the other")

    def _taken(self, exported: Exported) -> Taken:
        cut, name = exported.manifest.cut, self._broker.name
        notes = tuple(
            f"{name}: nothing is told of what happened from position {gap.start} to {gap.end}: {gap.reason}"
            for gap in cut.gaps
        )
        return Taken(name, "new" if exported.is_new else "there already", cut.number, notes=notes)
