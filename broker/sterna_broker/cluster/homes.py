"""Homes, settled by transactions: each name has one broker, whoever asks first and whoever asks at the same time.

A home is created if absent, together with what it depends on: the store's identity, and for topics that no pattern was
claimed since we looked (for patterns: no topic). So a topic and a pattern that matches it never end on two brokers. The
ends of bridges are claimed together, whoever comes first: the plan, or who opens one of them. What somebody opens is
claimed only where every bridge that etcd has is known, for topics every configured subscription, whose pattern gets its
home with the first of them.
The outcome of a claim that is not known is found out by reading. While a home is being given up here, whoever asks for
that name waits: it must not be opened in between. Where etcd does not answer, it is nobody's until etcd does: whoever
asks is told to try again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog
from sterna_etcd import (
    Condition,
    Delete,
    Etcd,
    EtcdError,
    Get,
    HomeKey,
    KeyValue,
    Put,
    StoreIdentity,
    StoreReplacedError,
    UnavailableError,
    UnknownOutcomeError,
    absent,
    mod_revision,
    unchanged_since,
)
from sterna_etcd.records import HomeRecord, RecordError

from sterna_broker.cluster.leaving import ElsewhereError, Leaving
from sterna_broker.cluster.placement import Wishes, bound_to, least_loaded, loads, unknown_broker
from sterna_broker.cluster.view import View, stored_of
from sterna_broker.configuration.patterns import matches
from sterna_broker.refusals import RefusedError
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="homes")

# Homes of a large configuration are made so many at a time.
_PARALLEL = 16

# So many are claimed in one transaction, as long as so many others are where they were: etcd takes 128 operations.
_TOGETHER_MAX = 60
_PARTNERS_MAX = 60
# One that is given away, with no other: as long as so many are.
_LEFT_PARTNERS_MAX = 120

# Somebody else's change came in between: so often a claim looks again.
_TRIES = 20

# The kinds of configured objects that tie names together: any, and topics.
_TYING = ("Bridge", "DurableSubscription")

# How long a claim waits for the view to have what a transaction has seen.
_CATCH_UP_S = 0.5

# How long until etcd is asked again to take a home from us, when its answer is missing.
_DOUBT_PAUSE_S = 1.0

GOING = RefusedError(
    "UNAVAILABLE",
    "destination",
    "The cluster is being deleted, since it holds no message, and takes no more.",
    "Send to another cluster, or again when this one has been made anew.",
    # Waiting does not help: who is told that something may be tried again waits for it.
    retryable=False,
)


class Homes:
    """See the module. `settled` is set whenever the view's homes may have changed."""

    def __init__(self, view: View, etcd: Etcd, identity: StoreIdentity, name: str) -> None:
        self.name = name
        self.view = view
        self.wishes = Wishes()
        """What the configuration that is known here wants; replaced with each one."""

        self.claimed_s: dict[HomeKey, float] = {}
        """When a home of ours was claimed or asked for, by the loop's clock: what is meant to live there may not exist
        yet."""
        self.on_back: Callable[[], None] = lambda: None
        """Told when etcd has refused to give away what has been taken out of the engine already."""

        self.on_leaving: Callable[[HomeKey], None] = lambda _: None
        """Told, in the same step of the loop, of each name that begins to leave, and again when that has ended."""

        self._etcd = etcd
        self._identity = identity
        self._leaving: dict[HomeKey, Leaving] = {}
        self._deciding: set[asyncio.Task[None]] = set()
        self._claims: dict[HomeKey, asyncio.Task[str]] = {}
        self._chosen: dict[HomeKey, str] = {}
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._told = asyncio.Event()

    def told(self) -> None:
        """The view has heard of something new."""
        told, self._told = self._told, asyncio.Event()
        told.set()

    def epoch(self, key: HomeKey) -> int:
        """Etcd's revision of a name's home, when that is this broker and stays so for now; else 0.

        Whoever has looked at a home and waited since compares it: under another epoch it is another claim.
        """
        stored = self.view.homes.get(key)
        is_ours = stored is not None and stored.record.broker == self.name
        return stored.revision if stored and is_ours and not self.is_leaving(key) and not self.is_torn(key) else 0

    async def of(self, key: HomeKey) -> str:
        """The broker of a name; one without a home gets one.

        Raises:
            RefusedError: it cannot have one: SPANS_HOMES; UNAVAILABLE: etcd cannot be asked, or the cluster is going.
        """
        await self.stays(key)
        home = self.view.home(key.kind, key.name)
        if home in (None, self.name):
            # What subscribes to a pattern is to be where the topics are that match, and that is not known.
            for one in [one for one in self._leaving if _are_tied(key, one)]:
                await self.stays(one)
            home = self.view.home(key.kind, key.name)
        if home == self.name and self.is_torn(key):
            raise unplaced(key, UnavailableError("it is about to follow a pattern that matches it"))
        if home is not None:
            if home == self.name:
                self.claimed_s[key] = asyncio.get_running_loop().time()
            return home
        # All who ask for one name at the same time share one claim.
        task = self._claims.get(key)
        if task is None:
            task = self._claims[key] = asyncio.create_task(self._place(key), name="claim-home")
            task.add_done_callback(lambda task: self._claimed(key, task))
        return await asyncio.shield(task)

    def _claimed(self, key: HomeKey, task: asyncio.Task[str]) -> None:
        self._claims.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone meanwhile: then nobody looks

    @property
    def leaving(self) -> frozenset[HomeKey]:
        """The queues and topics that are being given up: whatever the view says, the engine has them no more.

        Of a pattern it has what subscribes to it, until what matches it has gone, too.
        """
        return frozenset(key for key in self._leaving if key.kind != "pattern" and self.is_leaving(key))

    def is_torn(self, key: HomeKey) -> bool:
        """Whether a topic is to follow a pattern that matches it: they have been parted, and that lives elsewhere."""
        return key.kind == "topic" and bool(bound_to(self.view, key) - {self.name})

    @property
    def has_doubts(self) -> bool:
        """Whether etcd has been asked to change a home, and nobody knows whether it has."""
        return any(leaving.doubt is not None and self.is_leaving(key) for key, leaving in self._leaving.items())

    def is_leaving(self, key: HomeKey) -> bool:
        """Whether a name is being given up here, or in doubt: once another home is known, the change cannot be made."""
        leaving, stored = self._leaving.get(key), self.view.homes.get(key)
        return leaving is not None and stored is not None and stored.revision == leaving.revision

    def goes_to(self, key: HomeKey) -> str:
        """The broker that a name is being given to, or perhaps has been; empty: none."""
        return self._leaving[key].broker if self.is_leaving(key) else ""

    async def stays(self, key: HomeKey) -> None:
        """Waits while a home is being given up here; once etcd's watch has told of its new home, it is decided as well.

        Raises:
            RefusedError: UNAVAILABLE: etcd has been asked to give it to another broker, and did not answer.
        """
        while self.is_leaving(key):
            leaving = self._leaving[key]
            if leaving.doubt is not None:
                raise unplaced(key, leaving.doubt)
            await leaving.told.wait()

    async def stop(self) -> None:
        """Asks no more about what is in doubt. It stays closed: whoever is served still is refused it."""
        for task in self._deciding:
            task.cancel()
        if self._deciding:
            await asyncio.wait(self._deciding)

    async def claim_all(self, wanted: dict[HomeKey, str], static: Iterable[HomeKey], *, is_plan: bool = False) -> None:
        """Gives all of them these homes; what somebody else was quicker with is theirs.

        `is_plan`: they may be elsewhere as well. What was claimed since the plan was made, or is claimed with it, and
        matches from another broker, is looked at in the next plan.
        """
        fixed = set(static)

        async def together(homes: dict[HomeKey, str]) -> None:
            async with self._slots:
                if is_plan and any(bound_to(self.view, key) - {broker} for key, broker in homes.items()):
                    return
                try:
                    await self._claim(homes, fixed)
                except (EtcdError, RefusedError) as error:
                    key = next(iter(homes))
                    _log.warning("home_not_settled", kind=key.kind, name=key.name, count=len(homes), error=str(error))

        left = dict(wanted)
        claims = [
            {one: left.pop(one) for one in self.wishes.group(key) if one in left} for key in wanted if key in left
        ]
        await asyncio.gather(*(together(homes) for homes in claims))

    async def recall(self, before: dict[HomeKey, HomeRecord]) -> None:
        """Writes down again where everything lives, in an etcd that is to be taken as it is and does not know.

        Before anything is given a new home: brokers take such an etcd one after the other, and whatever lives on one
        that has not come to it yet would be given to one that has, away from its messages. What etcd does know counts.
        """
        for _ in range(_TRIES):
            unknown = {key: record for key, record in before.items() if self.view.home(key.kind, key.name) is None}
            if not unknown:
                return
            _log.warning("homes_recalled", count=len(unknown))
            static = [key for key, record in unknown.items() if record.static]
            await self.claim_all({key: record.broker for key, record in unknown.items()}, static)

    async def release(self, key: HomeKey, still: Callable[[], bool]) -> None:
        """Gives up a home of ours that nothing lives in any more, if it is still so when nobody can come in between."""
        await self._leave(key, "", still, is_bound=False)

    async def move(self, key: HomeKey, broker: str, leave: Callable[[], bool], *, is_bound: bool = False) -> bool:
        """Gives one of our names a new home, once `leave` has taken it out of here; whether it is there by now.

        `is_bound`: it follows others that have gone, and is not to be open here again, even if etcd refuses for now.
        """
        await self._leave(key, broker, leave, is_bound=is_bound)
        return self.view.home(key.kind, key.name) == broker

    async def _leave(self, key: HomeKey, broker: str, leave: Callable[[], bool], *, is_bound: bool) -> None:
        """`broker`: whose it is to be; empty: nobody's."""
        stored = self.view.homes.get(key)
        if stored is None or stored.record.broker != self.name or self.is_leaving(key):
            return
        if leave():
            partners = self._partners({key: broker}, _LEFT_PARTNERS_MAX) if broker else []
            leaving = self._leaving[key] = Leaving(broker, stored.revision, partners, is_bound=is_bound)
            record = HomeRecord(broker=broker, static=stored.record.static) if broker else None
            # By itself: whoever waits here may be cancelled, and then it is not open here again all the same.
            task = asyncio.create_task(self._decide(key, leaving, record), name="give-home-up")
            self._deciding.add(task)
            self.on_leaving(key)
            task.add_done_callback(lambda task: self._ended(task, leaving))
            await leaving.told.wait()

    async def _decide(self, key: HomeKey, leaving: Leaving, record: HomeRecord | None) -> None:
        """Changes a home in etcd; where the answer is missing, as often as it takes until one comes.

        Only a change says for certain: one whose answer is missing may be on its way still when its key is read. Each
        is on condition that nothing has changed, so that one of them takes effect at most.
        """
        while True:
            try:
                await self._change(key, record, leaving)
                break
            except ElsewhereError as error:
                # Neither this nor any before can be done: they were on the same conditions. What has left the engine
                # is here, and it has to be looked at anew where it goes.
                _log.warning("home_not_given_up", kind=key.kind, name=key.name, error=str(error))
                self.on_back()
                break
            except EtcdError as error:
                if leaving.doubt is None:
                    _log.warning("home_not_given_up", kind=key.kind, name=key.name, error=str(error))
                    if not isinstance(error, UnknownOutcomeError) and not leaving.is_bound:
                        # It was not done, and is ours; what `leave` has taken out has to be made again.
                        self.on_back()
                        break
                    self.view.changed.add("homes")  # what is kept of the view does not have it
                leaving.doubt = error
            leaving.told.set()
            await asyncio.sleep(_DOUBT_PAUSE_S)
        if self._leaving.get(key) is leaving:
            del self._leaving[key]
            self.on_leaving(key)

    def _ended(self, task: asyncio.Task[None], leaving: Leaving) -> None:
        """Where it was cut off, perhaps before its first step, a name is in doubt for as long as the broker lives."""
        self._deciding.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            _log.error("home_not_decided", exc_info=defect)
        leaving.doubt = leaving.doubt or UnavailableError("nobody waits for etcd's answer any more")
        leaving.told.set()

    async def _place(self, key: HomeKey) -> str:
        """Chooses a home and settles it."""
        if self.view.is_going:
            raise GOING
        try:
            for _ in range(_TRIES):
                if why := unknown_broker(self.view, self.wishes, key):
                    raise awaited(key, why)
                group = self.wishes.group(key)
                homes = self._choice(key, group)
                self._chosen[key] = homes[key]
                await self._claim(homes, is_opened=True)
                home = self.view.home(key.kind, key.name)
                if home is not None:
                    return home
        except EtcdError as error:
            raise unplaced(key, error) from error
        finally:
            self._chosen.pop(key, None)
        raise unplaced(key, UnavailableError("too many changes at the same time"))

    def _choice(self, key: HomeKey, group: list[HomeKey]) -> dict[HomeKey, str]:
        """Where a name without a home goes, and with it those of its group that have none: as `placement.plan` has it.

        Raises:
            RefusedError: SPANS_HOMES.
        """
        view = self.view
        bound = bound_to(view, key)
        if len(bound) > 1:
            raise spans(key, bound)
        if not bound:
            bound = {home for one in group if (home := view.home(one.kind, one.name)) is not None}
            bound = bound.union(*(bound_to(view, one) for one in group))
        # What a configured subscription matches lives with it, whoever opens which of that first.
        patterns = [one for one in self.wishes.patterns(key) if view.home(one.kind, one.name) is None]
        matched = {one: bound_to(view, one) for one in patterns}
        if not bound:
            bound = bound.union(*(brokers for brokers in matched.values() if len(brokers) == 1))
        if not bound:
            bound = set([broker for one in (key, *group) if (broker := self._named(one))][:1])
        # What is being claimed at the same time counts, or a burst of new names would all go to one broker.
        counts = loads(view, self._chosen.values())
        chosen = next(iter(sorted(bound)), None) or least_loaded(counts, self.name) or self.name
        # Each where its own manifest says: ends that are kept apart so are told of, and not brought together.
        homes = {
            one: self._named(one) or chosen for one in group if view.home(one.kind, one.name) is None or one == key
        }
        homes = {one: home for one, home in homes.items() if one == key or not bound_to(view, one) - {home}}
        return homes | {one: homes[key] for one, brokers in matched.items() if not brokers - {homes[key]}}

    def _named(self, key: HomeKey) -> str:
        """The broker that the manifest names, if nothing binds the name to another."""
        named = self.wishes.broker(key)
        return named if not bound_to(self.view, key) - {named} else ""

    async def _claim(
        self, homes: Mapping[HomeKey, str], static: Collection[HomeKey] = (), *, is_opened: bool = False
    ) -> None:
        """Creates these homes, which belong together, unless there are some of them: then the view has those.

        `is_opened`: somebody opens one of them, and what ties it to others has to be known. A plan rests on objects,
        and knows what was there before them.

        Many of them are claimed bit by bit, each bit as long as the first is what it was. Where nothing is claimed and
        nothing found, what they depend on has changed.

        Raises:
            EtcdError: etcd could not be asked.
        """
        keys = list(homes)
        for begin in range(0, len(keys), _TOGETHER_MAX):
            some = {key: homes[key] for key in keys[begin : begin + _TOGETHER_MAX]}
            if not await self._claim_some(some, static, is_opened=is_opened):
                return

    async def _claim_some(self, homes: dict[HomeKey, str], static: Collection[HomeKey], *, is_opened: bool) -> bool:
        layout, revision = self.view.layout, self.view.revision
        records = {key: HomeRecord(broker=broker, static=key in static) for key, broker in homes.items()}
        paths = {key: layout.home(key.kind, key.name) for key in homes}
        conditions = [*self._identity.conditions(), *(absent(path) for path in paths.values())]
        for key in homes:
            conditions += [one for one in self._unchanged(key, revision) if one not in conditions]
        conditions += self._partners(homes)
        if is_opened and self.wishes.revision:
            has_topics = any(key.kind == "topic" for key in homes)
            tying = _TYING if has_topics else _TYING[:1]
            conditions += [unchanged_since(layout.configs_of(kind), self.wishes.revision) for kind in tying]
        puts = [Put(paths[key], record.encode()) for key, record in records.items()]
        try:
            done = await self._etcd.transact(conditions, puts, [Get(path) for path in paths.values()])
        except UnknownOutcomeError:
            await self._identity.verify(self._etcd, wall_ms())
            for key, path in paths.items():
                self._found(key, (await self._etcd.get(path)).found)
            return False
        if done.succeeded:
            for key, record in records.items():
                self.view.note_home(key, record, done.revision)
                if record.broker == self.name:
                    self.claimed_s[key] = asyncio.get_running_loop().time()
                _log.info("home_settled", kind=key.kind, name=key.name, broker=record.broker)
            return True
        found = [self._found(key, result) for key, result in zip(paths, done.results, strict=False)]
        if not any(found):
            # Either this is not our etcd any more (then this raises), or a change that the watch is about to tell.
            await self._identity.verify(self._etcd, wall_ms())
            await self._catch_up(revision)
        return False

    def _partners(self, homes: dict[HomeKey, str], most: int = _PARTNERS_MAX) -> list[Condition]:
        """That those whom bridges tie to these are where we know them to be, or still nowhere."""
        conditions = []
        for key in self.wishes.group(next(iter(homes)))[:most]:
            if key not in homes:
                stored = self.view.homes.get(key)
                path = self.view.layout.home(key.kind, key.name)
                conditions.append(absent(path) if stored is None else mod_revision(path, stored.revision))
        return conditions

    def _unchanged(self, key: HomeKey, revision: int) -> list[Condition]:
        layout = self.view.layout
        match key.kind:
            case "topic":
                return [unchanged_since(layout.homes_of("pattern"), revision)]
            case "pattern":
                return [unchanged_since(layout.homes_of(kind), revision) for kind in ("topic", "pattern")]
            case _:
                return []

    def _found(self, key: HomeKey, found: KeyValue | int | None) -> str | None:
        if not isinstance(found, KeyValue):
            return None
        try:
            stored = stored_of(HomeRecord, found)
        except RecordError as error:
            raise UnavailableError(str(error)) from error
        self.view.note_home(key, stored.record, stored.revision)
        broker: str = stored.record.broker
        return broker

    async def _catch_up(self, revision: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                while self.view.revision <= revision or self._has_new_ties():
                    await self._told.wait()

    def _has_new_ties(self) -> bool:
        """Whether the view has something that ties names together and that the wishes have not been made from yet."""
        configs = self.view.configs.items()
        return any(claim.kind in _TYING and stored.revision > self.wishes.revision for claim, stored in configs)

    async def _change(self, key: HomeKey, record: HomeRecord | None, leaving: Leaving) -> None:
        """Changes a home, or deletes it, if it is still what it was; the view has what is there afterwards.

        Raises:
            ElsewhereError: what is tied to it has moved: then it is not changed, now or later.
            EtcdError: etcd could not be asked, or its answer is missing (UnknownOutcomeError).
        """
        path = self.view.layout.home(key.kind, key.name)
        conditions = [*self._identity.conditions(), mod_revision(path, leaving.revision), *leaving.partners]
        change = Delete(path) if record is None else Put(path, record.encode())
        done = await self._etcd.transact(conditions, [change], [Get(path)])
        if done.succeeded:
            self.view.note_home(key, record, done.revision)
        else:
            try:
                await self._look_at_unchanged(key, done.results[0], done.revision)
            except StoreReplacedError:
                raise  # it was not done, in whatever this is
            except EtcdError as error:
                # What cannot be read now says nothing of whose it is: somebody has changed it.
                raise UnknownOutcomeError(str(error)) from error
            found = done.results[0]
            if isinstance(found, KeyValue) and found.mod_revision == leaving.revision:
                # Still what it was, and not in another etcd (that would be another revision or identity).
                await self._identity.verify(self._etcd, wall_ms())
                raise ElsewhereError("what it belongs together with has moved meanwhile")
        if self.view.home(key.kind, key.name) != self.name:
            self.claimed_s.pop(key, None)

    async def _look_at_unchanged(self, key: HomeKey, found: KeyValue | int | None, revision: int) -> None:
        """Notes whose a home is that was not what it had been."""
        if self._found(key, found) is None:
            # Either this is not our etcd any more (then this raises), or it is gone.
            await self._identity.verify(self._etcd, wall_ms())
            self.view.note_home(key, None, revision)


def _are_tied(one: HomeKey, other: HomeKey) -> bool:
    """Whether one is a topic, and the other a pattern that matches it."""
    if one.kind == "pattern":
        one, other = other, one
    return one.kind == "topic" and other.kind == "pattern" and matches(other.name, one.name)


def spans(key: HomeKey, brokers: Iterable[str]) -> RefusedError:
    """The refusal of what would have to be on several brokers at once."""
    message = f"'{key.name}' matches topics that live on several brokers: {', '.join(sorted(brokers))}."
    remedy = "Subscribe to the topics one by one, or give them one home (spec.broker) before they are used."
    return RefusedError("SPANS_HOMES", key.name[:256], message, remedy)


def awaited(key: HomeKey, why: str) -> RefusedError:
    """The refusal of what is to live on a broker that has not been there yet."""
    message = f"The {key.kind} '{key.name}' has no home yet: {why}."
    remedy = "Start that broker, or correct spec.broker."
    return RefusedError("UNAVAILABLE", key.name[:256], message, remedy, retryable=True)


def unplaced(key: HomeKey, error: Exception) -> RefusedError:
    """The refusal while nobody can say where a name lives."""
    message = f"Where the {key.kind} '{key.name}' lives cannot be settled now: {error}."
    return RefusedError("UNAVAILABLE", key.name[:256], message, "Try again; see the broker's log.", retryable=True)
