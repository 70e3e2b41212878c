"""What audits judge: snapshots of several brokers, from one cut up to another, verified before Spark reads them.

The unit is an *interval*: what happened between two cuts of one broker that follow one another. State at the cut
before, events, and state at the cut after make three witnesses of it. Everything is judged by positions of the log;
times are only shown.

What cannot be trusted is not read: a cut with a fault in its files or manifest counts as not there, and the intervals
that it bounds are not judged. The audit of chains says why.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.ledger_files import Converted
from sterna_audit.audits.tables import Reader, reader
from sterna_audit.schema import Folder
from sterna_audit.snapshots import chains, reading
from sterna_audit.snapshots.chains import Chain
from sterna_audit.snapshots.keys import Verifier
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Manifest
from sterna_audit.snapshots.reading import Snapshot
from sterna_audit.snapshots.stores import Store

if TYPE_CHECKING:
    # Who gives no manifests needs nothing that reads them.
    from sterna_audit.audits.declared import Declarations

_THREADS = 4
#: So many rows at most come to the driver, to go to every executor from there.
SMALL_ROWS_MAX = 200_000
#: Faults of a link between two cuts: each of them can be read by itself.
_OF_LINKS = frozenset({"missing-cut", "broken-chain", "wrong-range"})


class HistoryError(Exception):
    """There is no such history; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What happened between two cuts of a broker that follow one another.

    Attributes:
        place: the number that stands for the broker.
        cut: the number of the later cut.
        has_gap: whether events are missing in it.
        begins_empty: it is the first one, and its events tell everything from the beginning of the log on.
    """

    place: int
    cut: int
    has_gap: bool
    begins_empty: bool = False


@dataclass(frozen=True)
class Broker:
    """A broker's part of a history.

    Attributes:
        number: which stands for it in the column `place`.
        chain: what was verified, from the cut `first` on.
        first: the cut that it begins with.
        last: and the one that it ends with.
        snapshots: those that can be read, by number.
        intervals: those that can be judged.
        unproven: why not all can be, a sentence each.
    """

    number: int
    chain: Chain
    first: int
    last: int
    snapshots: dict[int, Manifest]
    intervals: tuple[Interval, ...]
    unproven: tuple[str, ...]

    @property
    def place(self) -> Place:
        """Cluster and name."""
        return self.chain.place

    @property
    def rows(self) -> int:
        """How many rows all of its tables have, as the manifests say."""
        return sum(file.rows for manifest in self.snapshots.values() for file in manifest.files.values())

    @property
    def has_cuts(self) -> bool:
        """Whether there is a cut in the range, whole or broken; one that is being written does not exist yet."""
        return any(not one.is_half_written for one in self.chain.snapshots)


@dataclass
class History:
    """Snapshots to be judged, and DataFrames of what is in them.

    Attributes:
        spark: the session.
        store: where the snapshots are.
        brokers: in the order of their numbers.
        reader: reads tables.
        ledgers: the clients' ledgers as tables, where there are any.
        manifests: what the configuration should be, where somebody says so.
    """

    spark: SparkSession
    store: Store
    brokers: Sequence[Broker]
    reader: Reader
    ledgers: Converted | None = None
    manifests: "Declarations | None" = None
    _kept: list[DataFrame] = field(default_factory=list, init=False)

    @property
    def intervals(self) -> list[Interval]:
        """All that can be judged."""
        return [interval for broker in self.brokers for interval in broker.intervals]

    def read(
        self, folder: Folder, name: str, cuts: Iterable[tuple[int, int]], columns: Sequence[str] = ()
    ) -> DataFrame:
        """A table's rows of these cuts, by the broker's number and the cut's, with the columns `place` and `cut`.

        `columns` are those of the table that are looked at, here as in what follows; none: all. It spares who reads by
        Arrow the others, and says no more than that: Spark's own reader finds out by itself.
        """
        wanted = set(cuts)
        chosen = [
            one
            for broker in self.brokers
            for one in broker.chain.snapshots
            if (broker.number, one.number) in wanted and one.number in broker.snapshots
        ]
        return self.reader.read(folder, name, chosen, columns)

    def events(self, name: str, intervals: Iterable[Interval] | None = None, columns: Sequence[str] = ()) -> DataFrame:
        """What happened in intervals (None: all that can be judged): `cut` is the one at the end."""
        chosen = self.intervals if intervals is None else intervals
        return self.read("events", name, ((one.place, one.cut) for one in chosen), columns)

    def after(self, name: str, intervals: Iterable[Interval] | None = None, columns: Sequence[str] = ()) -> DataFrame:
        """The state at the ends of intervals: `cut` is the one at the end."""
        chosen = self.intervals if intervals is None else intervals
        return self.read("state", name, ((one.place, one.cut) for one in chosen), columns)

    def before(self, name: str, intervals: Iterable[Interval] | None = None, columns: Sequence[str] = ()) -> DataFrame:
        """The state at the beginnings of intervals: `cut` is the one at the *end*, so that it joins with the others."""
        chosen = self.intervals if intervals is None else intervals
        cuts = ((one.place, one.cut - 1) for one in chosen if not one.begins_empty)
        found = self.read("state", name, cuts, columns)
        return found.withColumn("cut", F.col("cut") + 1)

    def state(self, name: str, columns: Sequence[str] = ()) -> DataFrame:
        """The state at every cut that can be read."""
        return self.read("state", name, ((one.number, cut) for one in self.brokers for cut in one.snapshots), columns)

    def newest(self, name: str, columns: Sequence[str] = ()) -> DataFrame:
        """The state at each broker's last cut that can be read."""
        cuts = ((one.number, max(one.snapshots)) for one in self.brokers if one.snapshots)
        return self.read("state", name, cuts, columns)

    def ledger(self, name: str) -> DataFrame:
        """A table of the ledgers (`ledger_files.TABLES`): of these brokers alone, with `place` for their `store`."""
        assert self.ledgers is not None, "there are no ledgers"
        rows = self.ledgers.read(self.spark, name)
        return (
            rows.join(self.places.select("place", "store"), "store").drop("store") if "store" in rows.columns else rows
        )

    @cached_property
    def places(self) -> DataFrame:
        """The brokers: `place`, `cluster`, `broker`, `store`."""
        rows = [
            (
                one.number,
                one.place.cluster,
                one.place.broker,
                next((manifest.cut.store for manifest in one.snapshots.values()), ""),
            )
            for one in self.brokers
        ]
        return F.broadcast(self.spark.createDataFrame(rows, "place int, cluster string, broker string, store string"))

    def keep(self, rows: DataFrame) -> DataFrame:
        """Rows that are computed once though they are asked for again, until `release`."""
        kept = rows.persist()
        self._kept.append(kept)
        return kept

    def small(self, rows: DataFrame, at_most: int) -> DataFrame:
        """Rows that go to each executor with what needs them, where there are not too many.

        Where there are none Spark knows that while it plans, and leaves out what they would have been joined with.

        Args:
            rows: which.
            at_most: so many there can be, by the manifests.
        """
        if at_most > SMALL_ROWS_MAX:
            # There may be many, and mostly there are few all the same, or none: of transactions those that are open.
            kept = self.keep(rows)
            return self.counted(kept, kept.count())
        found = rows.collect()
        # Rows from Python are to Spark's planner so many as there may be, also none.
        return F.broadcast(self.spark.createDataFrame(found, rows.schema)) if found else rows.limit(0)

    @staticmethod
    def counted(rows: DataFrame, count: int) -> DataFrame:
        """As `small`, where it is known how many rows there are; they are computed again unless they are kept."""
        if count > SMALL_ROWS_MAX:
            return rows
        return F.broadcast(rows) if count else rows.limit(0)

    def rows(self, folder: Folder, name: str, intervals: Iterable[Interval]) -> int:
        """How many rows a table has in these intervals (the state: at their ends), as the manifests say."""
        wanted = {(one.place, one.cut) for one in intervals}
        return sum(
            manifest.files[path].rows
            for broker in self.brokers
            for cut, manifest in broker.snapshots.items()
            if (broker.number, cut) in wanted
            for path in manifest.files_of(folder, name)
        )

    def release(self) -> None:
        """What was kept is let go of: an audit has ended."""
        while self._kept:
            self._kept.pop().unpersist()

    def placed(self, rows: DataFrame) -> DataFrame:
        """Rows with `cluster` and `broker` for their `place`, for findings."""
        return rows.join(self.places.drop("store"), "place", "left")


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a range: a cut's number, or a time in milliseconds since 1970.

    A time stands for each broker's last cut up to then.
    """

    cut: int | None = None
    time_ms: int | None = None

    def is_after(self, other: "Bound") -> bool:
        """Whether it is after another one for certain: a number and a time cannot be compared."""
        pairs = ((self.cut, other.cut), (self.time_ms, other.time_ms))
        return any(one is not None and than is not None and one > than for one, than in pairs)


def bound(text: str) -> Bound:
    """A bound as it is written: `12`, `2026-11-23` or `2026-11-23T06:00` (UTC, or with an offset as +01:00).

    Raises:
        ValueError: it is none.
    """
    if text.isascii() and text.isdigit():
        if int(text) < 1:
            raise ValueError("cuts are numbered from 1 on")
        return Bound(cut=int(text))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a cut's number nor a time as 2026-11-23T06:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)  # noqa: UP017 - as others here
    return Bound(time_ms=int(moment.timestamp() * 1_000))


def find(
    store: Store,
    verifier: Verifier | None,
    *,
    start: Bound | None = None,
    end: Bound | Mapping[Place, Bound] | None = None,
    places: Sequence[Place] = (),
) -> list[Broker]:
    """Finds the snapshots of a range and verifies manifests, links and files; rows are the audit of chains' own.

    Nothing of it takes Spark, so that it can be known before Spark starts.

    Args:
        store: where they are.
        verifier: whose signatures count; None: the caller said that there need be none.
        start: the first cut; None: the first that there is.
        end: the last one, which has to be there, or each broker's own; None: the last that there is.
        places: whose; none: all that are there.

    Raises:
        HistoryError: there is nothing of that.
        StoreError: the store does not answer.
    """
    chosen = list(places) or list(reading.places(store))
    if not chosen:
        raise HistoryError(f"there are no snapshots in {store.uri}")
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sterna-verify") as pool:
        found = pool.map(
            lambda numbered: _broker(store, numbered[1], numbered[0], verifier, start, _of(end, numbered[1])),
            enumerate(chosen),
        )
        brokers = list(found)
    if not any(one.has_cuts for one in brokers):
        raise HistoryError(f"there are no snapshots of that range in {store.uri}")
    return brokers


def history_of(spark: SparkSession, store: Store, brokers: Sequence[Broker], root: str | None = None) -> History:
    """What was found (`find`) as DataFrames.

    Args:
        spark: the session.
        store: where the snapshots are.
        brokers: whose.
        root: the store's root as Spark knows it; None: its URI.

    Raises:
        SparkError: Spark has no connector for the store, and executors cannot read it otherwise.
    """
    numbers = {one.place: one.number for one in brokers}
    return History(spark, store, brokers, reader(spark, store, numbers, root))


def open_history(
    spark: SparkSession,
    store: Store,
    verifier: Verifier | None,
    *,
    start: Bound | None = None,
    end: Bound | Mapping[Place, Bound] | None = None,
    places: Sequence[Place] = (),
    root: str | None = None,
) -> History:
    """Finds snapshots (`find`) and opens them (`history_of`), for who has a session already.

    Raises:
        HistoryError: there is nothing of that.
        StoreError: the store does not answer.
        SparkError: Spark has no connector for the store, and executors cannot read it otherwise.
    """
    return history_of(spark, store, find(store, verifier, start=start, end=end, places=places), root)


def _of(bound: Bound | Mapping[Place, Bound] | None, place: Place) -> Bound | None:
    return bound.get(place) if isinstance(bound, Mapping) else bound


def _broker(
    store: Store, place: Place, number: int, verifier: Verifier | None, start: Bound | None, end: Bound | None
) -> Broker:
    first = _cut(store, place, start) if start is not None else None
    last = _cut(store, place, end) if end is not None else None
    if end is not None and (last is None or (first is not None and first > last)):
        # All that is there is later than the range, or the range ends before it begins.
        return Broker(number, Chain(place, None), 0, 0, {}, (), ("there is no cut of this range",))
    chain = chains.verify(store, place, verifier, first=first, last=last, rows=False)
    there = [one.number for one in chain.snapshots]
    if last is None and there and chain.snapshots[-1].is_half_written:
        # It is being written now, or its writing was broken off: it does not exist yet.
        there.pop()
    first = first or min(there, default=0)
    last = last or max(there, default=0)
    faulty, unlinked = _faults(chain)
    readable = {
        one.number: one.manifest
        for one in chain.snapshots
        if one.manifest is not None and one.number not in faulty and not _pruned(chain, one)
    }
    intervals, unproven = _intervals(number, first, last, readable, unlinked)
    return Broker(number, chain, first, last, readable, intervals, unproven)


def _cut(store: Store, place: Place, bound: Bound) -> int | None:
    """The cut that a bound stands for, for this broker; None: there is none as early as that."""
    if bound.time_ms is None:
        return bound.cut
    for number in reversed(reading.numbers(store, place)):
        manifest = reading.find(store, place, number).manifest
        if manifest is not None and manifest.cut.time_ms <= bound.time_ms:
            return number
    return None


def _faults(chain: Chain) -> tuple[set[int], set[int]]:
    """The cuts that are not read, and those whose link to the one before is not to be trusted."""
    faulty: set[int] = set()
    unlinked: set[int] = set()
    for finding in chain.findings:
        for one in chain.snapshots:
            if finding.file == one.path or finding.file.startswith(f"{one.path}/"):
                (unlinked if finding.what in _OF_LINKS else faulty).add(one.number)
    return faulty, unlinked


def _pruned(chain: Chain, snapshot: Snapshot) -> bool:
    return chain.anchor is not None and bool(chain.anchor.pruned_tables(snapshot.number))


def _intervals(
    place: int, first: int, last: int, readable: dict[int, Manifest], unlinked: set[int]
) -> tuple[tuple[Interval, ...], tuple[str, ...]]:
    """The intervals that can be judged, and why others cannot."""
    intervals, unproven = [], []
    beginning = readable.get(1)
    if first == 1 and beginning is not None and 1 not in unlinked and beginning.cut.events and not beginning.cut.gaps:
        intervals.append(Interval(place, 1, has_gap=False, begins_empty=True))
    for cut in range(first + 1, last + 1):
        before, after = readable.get(cut - 1), readable.get(cut)
        if before is None or after is None:
            broken = cut if after is None else cut - 1
            why = f"cut {broken} is not there, or cannot be read as a whole"
            unproven.append(f"between cuts {cut - 1} and {cut}: {why}")
        elif cut in unlinked or before.cut.store != after.cut.store:
            unproven.append(f"between cuts {cut - 1} and {cut}: one does not go on from the other")
        else:
            intervals.append(Interval(place, cut, has_gap=bool(after.cut.gaps)))
    if not intervals and not unproven:
        unproven.append("there is one cut alone, and what happened is between two")
    return tuple(intervals), tuple(unproven)
