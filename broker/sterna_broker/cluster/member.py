"""The broker in its cluster: whenever something has changed, everything is made so again.

One task does all of it, one round after the other: judge the configuration, give homes to what has none, tell the
engine what lives here, carry out deletions, move away what is being emptied, say how it stands. A round that is
repeated changes nothing, so it does not matter what a change was, nor how many came together.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog
from sterna_core import EngineError
from sterna_etcd import Claim, EtcdError, HomeKey
from sterna_etcd.records import BrokerRecord, BrokerStatus, Draining, ObjectStatus, UserRecord
from sterna_resources.bridge import Bridge

from sterna_broker.cluster import locality, placement
from sterna_broker.cluster.advertising import Advertising
from sterna_broker.cluster.counting import MessageCounts
from sterna_broker.cluster.deletions import Deletion, Deletions
from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.draining import Drain
from sterna_broker.cluster.examined import Examined, Examiner, Refusal
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.left_behind import LeftBehind
from sterna_broker.cluster.link import StoreLink
from sterna_broker.cluster.naming import Naming
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.cluster.registration import Registration
from sterna_broker.cluster.served import Served
from sterna_broker.cluster.statuses import Statuses, deleted, refused
from sterna_broker.cluster.strays import homeless
from sterna_broker.cluster.upkeep import EngineView
from sterna_broker.cluster.view import Stored
from sterna_broker.configuration.checks import SelectorCheck
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="cluster")

# Changes that come together are made together.
_GATHER_S = 0.01
# Without any change: blocked deletions, emptying, and homes that nobody else has given.
_ROUND_S = 1.0
# How long homes that nothing lives in are left alone: what was claimed may not have been opened yet.
_UNUSED_S = 60.0
_PRUNE_S = 15.0
# How long whoever opens a destination waits for the bridges and durable subscriptions that hang on it.
_TOLD_S = 10.0
# So many objects are gone through before others have a turn.
_PAUSE_EVERY = 250


class EngineConfiguration(Protocol):
    """The broker's live configuration: the one way to the engine's."""

    @property
    def lacks_room(self) -> bool:
        """Something of it is not made so, since the log had no room for that."""

    async def hand_over(self, objects: ObjectSet, before: Callable[[], None]) -> list[dict[str, Any]] | None:
        """Makes it so; what is refused of it, as rows with kind, name and error. None: it is so already."""

    def discard(self, word: str, name: str, client_id: str = "") -> None:
        """Something was deleted in the engine, and not by a change of the configuration."""


class Member:
    """See the module. `start` before the engine, `serve` once it runs, `stop` at the end."""

    def __init__(self, options: ClusterOptions, data: Path, version: str, selector_check: SelectorCheck) -> None:
        self.name = options.name
        self.link = link = StoreLink(options, data)
        self.examined = Examined()
        self._hung_on = locality.HungOn()
        self.homes = Homes(link.view, link.etcd, link.identity, options.name)
        self.homes.on_back = self._note_back
        link.doubtful = lambda: self.homes.leaving
        self.desk = ClusterDesk(
            self.homes, lambda: self.objects, self._is_told, self._held_back, lambda: link.fault is None
        )
        self.deletions = Deletions()
        self.draining: Draining | None = None
        self.on_users: Callable[[dict[str, UserRecord]], dict[str, str]] = lambda _: {}
        """Told all users of the cluster, at the start and after each change; says which it does not take, and why."""
        self.unready: Callable[[], list[str]] = list
        self.kept_warnings: Callable[[], list[str]] = list
        """Asked in each round why the broker is not ready; empty: it is."""

        self._options = options
        self._version = version
        self._statuses = Statuses(link.etcd, link.identity, link.layout, options.name)
        self._naming = Naming(options.cluster, options.name, data)
        self._registration = Registration(link.etcd, link.identity, link.layout, options.name, self._naming.is_ours)
        self._examiner = Examiner(selector_check)
        self._started_ms = wall_ms()
        self._advertising = Advertising(options.advertise, options.advertise_file, self.wake)
        self._listening: list[str] = []
        self._certificate = ""
        self._configuration: EngineConfiguration | None = None
        self._engine: EngineView | None = None
        self._left_behind = LeftBehind(data)
        self._drain: Drain | None = None
        self._refused_users: dict[str, str] = {}
        self._refused_by_engine: dict[tuple[str, str], dict[str, str]] = {}
        self._counts = MessageCounts()
        self._awake = asyncio.Event()
        self._round_done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._next_prune_s = 0.0
        self._learned = False
        # What the current round has to make anew; it stays until a round has done it.
        self._todo: set[str] = {"configs", "users"}
        self._unplaced = False
        self._is_back = False
        self._deleting: dict[Claim, Deletion] = {}
        self._served: Served | None = None
        self._fail: Callable[[str], None] = lambda _: None
        self.applied_revision = 0

    # --- Beginning and end

    async def start(self) -> None:
        """Until there is a configuration to start with.

        Raises:
            KeptError: the kept copy cannot be used.
            NameTakenError: another broker has this name.
        """
        await self._advertising.start()
        await self.link.start()
        await self._naming.wait_free(self.link.view)
        # The link may have taken over a kept view.
        self.homes.view = self.link.view
        await self.homes.recall(self.link.homes_before)
        await self._examine()
        self._tell_users()

    def attach(self, pump: Pump, configuration: EngineConfiguration) -> None:
        """Before anybody can connect: what the engine has of names that live elsewhere is served to nobody.

        Raises:
            KeptError: what was kept of names that are left behind cannot be used.
        """
        self._left_behind.load()
        self._engine = EngineView(pump, configuration.discard)
        self._served = Served(self.homes, self.desk, self._engine)
        self._drain = Drain(self.homes, self.desk, self._engine, self._left_behind)
        self.homes.on_leaving = self._note_leaving
        self._served.compare()
        self._drain.look_at_once()

    async def serve(
        self, configuration: EngineConfiguration, addresses: list[str], fail: Callable[[str], None]
    ) -> None:
        """From now on the engine follows the cluster, and the cluster knows that this broker is there.

        `fail` is told when another broker has this name: it was quicker after all, or has taken it over.
        """
        assert self._drain is not None  # `attach` comes first
        await self._naming.keep()
        self._fail = fail
        drain = self.link.view.drains.get(self.name)
        if drain is not None and drain.record.closes_only:
            # Not only in the first round: what this broker has said before it was started anew may still be believed.
            self._drain.close()
        self._configuration = configuration
        self._listening = addresses
        self.link.heard = self.wake
        self._statuses.start()
        self._task = asyncio.create_task(self._run(), name="cluster-rounds")
        self.wake()

    async def stop(self) -> None:
        """Leaves: others know at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.homes.stop()
        await self._advertising.stop()
        await self._registration.stop()
        await self._statuses.stop()
        await self.link.stop()

    # --- What others ask

    @property
    def objects(self) -> ObjectSet:
        """The cluster's objects that hold."""
        return locality.without(self.examined.objects, set(self.deletions.done))

    @property
    def local_objects(self) -> ObjectSet:
        """The part of them that lives here."""
        return locality.local(self.link.view, self.objects, self.name, self.homes.leaving)

    @property
    def stray(self) -> dict[HomeKey, int]:
        """What is here of names that live on other brokers, with how many messages; it is given to nobody."""
        return self._served.stray if self._served is not None else {}

    @property
    def warnings(self) -> list[str]:
        """What people should know, although the broker is ready."""
        served = self._served.warnings if self._served is not None else []
        objects = self.local_objects
        dead_letters = locality.dead_letter_warnings(self.link.view, objects, self.name)
        waiting = self._drain.warnings if self._drain is not None else []
        aliases = [why.message for why in self.examined.partly.values()]
        told = [*waiting, *objects.warnings, *aliases, *dead_letters, *self.kept_warnings()]
        return [*self.link.faults, *served, *told]

    def shows(self, certificate: str) -> None:
        """The digest of the certificate that clients are shown from now on."""
        self._certificate = certificate
        self.wake()

    def wake(self) -> None:
        """Something has changed."""
        self.homes.told()
        self._awake.set()

    def remake(self) -> None:
        """Something was deleted in the engine that the configuration may want to be there."""
        self.link.view.changed.add("engine")
        self.wake()

    def shut(self) -> None:
        """Something was made in the engine, maybe, that is to take nothing."""
        if self._drain is not None:
            self._drain.shut()

    async def settled(self, revision: int, timeout_s: float) -> bool:
        """Waits until what etcd had at `revision` is made so here; whether it is."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.applied_revision < revision:
                    self._round_done.clear()
                    await self._round_done.wait()
        except TimeoutError:
            return False
        return True

    async def _is_told(self, key: HomeKey) -> bool:
        """For the desk: what hangs on a name is waited for where its home has changed since the last round."""
        homes = self.link.view.homes
        revision = max((homes[one].revision for one in self._hung_on.at(key) if one in homes), default=0)
        return await self.settled(revision, _TOLD_S)

    def _held_back(self, key: HomeKey) -> asyncio.Event | None:
        return self._drain.held_back(key) if self._drain is not None else None

    def _note_leaving(self, key: HomeKey) -> None:
        """A name has begun to leave, or that has ended, maybe so that it stays and has to be made here again.

        While the broker is being emptied it would only leave again, round upon round; afterwards all is made anew.
        """
        assert self._served is not None  # `attach` made both
        self._served.look(key)
        if self.homes.epoch(key) and self.name not in self.link.view.drains:
            self.remake()

    # --- Rounds

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_ROUND_S):
                    await self._awake.wait()
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass  # the round without a cause
            self._awake.clear()
            try:
                await self._round()
            except (EtcdError, EngineError, RefusedError) as error:
                _log.warning("round_failed", error=str(error))
            except Exception:  # noqa: BLE001, a defect in one round must not end all others
                _log.exception("round_failed")

    async def _round(self) -> None:
        """Makes everything so again that may be otherwise; a round without a cause looks only at what is under way."""
        view, todo = self.link.view, self._todo
        revision = view.revision
        todo |= view.changed
        view.changed.clear()
        if self._configuration is not None and self._configuration.lacks_room:
            todo.add("engine")  # nothing else would have it asked for again
        if self._served is not None:
            self._served.compare()
            if self._served.back:
                todo.add("engine")
        if (rival := self._naming.rival(view)) is not None:
            self._fail(self._naming.complaint(rival))
            return
        if "configs" in todo:
            await self._examine()
            # Before anything is made of the objects: what was deleted may have been made anew since.
            self.deletions.forget(self.examined.judged)
        if "users" in todo:
            self._tell_users()
        await self._look_after()
        await self._place(is_at_once=bool(todo))
        if self._drain is not None and "homes" in todo:
            await self._drain.look()  # before the engine is told of what has come
        if todo:
            await self._apply()
        await self._delete()
        await self._empty()
        await self._count_messages()
        if todo:
            await self._say()
        self._say_of_broker(revision)
        self._register()
        todo.clear()
        if view.changed:
            self.link.dirty()
            self._awake.set()
        self.applied_revision = max(self.applied_revision, revision)
        self._round_done.set()

    def _tell_users(self) -> None:
        records = {name: stored.record for name, stored in self.link.view.users.items()}
        self._refused_users = self.on_users(records)

    async def _examine(self) -> None:
        configs, revision = dict(self.link.view.configs), self.link.view.revision
        examined = await asyncio.to_thread(self._examiner.examine, configs)
        wishes = await asyncio.to_thread(placement.Wishes, examined.objects, revision)
        # Together: who may open a name is told where it is to live.
        self.examined, self.homes.wishes = examined, wishes
        self.homes.told()
        self._hung_on = locality.HungOn.by(examined.objects)

    async def _place(self, *, is_at_once: bool) -> None:
        """Gives homes to what has none: the first broker by name at once, the others when it has not done so."""
        view = self.link.view
        self._unplaced |= is_at_once
        if self.link.fault is not None or not view.live or not self._unplaced:
            return
        plan = await asyncio.to_thread(placement.plan, view.copy(), self.objects)
        self._unplaced = bool(plan.homes)
        if plan.homes and (view.live[0] == self.name or not is_at_once):
            await self.homes.claim_all(plan.homes, plan.static, is_plan=True)

    async def _apply(self) -> None:
        """Hands the engine what is different of what lives here."""
        assert self._configuration is not None  # rounds begin with `serve`
        assert self._served is not None  # rounds begin with `serve`
        assert self._drain is not None
        view, back = self.link.view.copy(), self._served.back
        parted = frozenset((claim.kind, claim.name) for claim in self._drain.parted)
        objects = ObjectSet(self.objects.entries, parted)
        self._is_back = False
        leaving = self.homes.leaving

        def local() -> tuple[ObjectSet, list[HomeKey]]:
            return locality.local(view, objects, self.name, leaving), placement.led_away(view, self.name)

        here, led_away = await asyncio.to_thread(local)
        rows = await self._configuration.hand_over(here, lambda: self._compare(led_away))
        # In the same step of the loop: a source that the configuration has just made takes nothing either.
        self._drain.shut()
        self._served.serve_again(back)
        if rows is None:
            return
        before = self._refused_by_engine
        self._refused_by_engine = {(str(row["kind"]), str(row["name"])): row["error"] for row in rows}
        if not before or self._refused_by_engine != before:
            _log.info("configuration_applied", revision=self.link.view.revision, refused=len(rows))

    def _compare(self, led_away: list[HomeKey]) -> None:
        """In the step in which the engine is told of what lives here: what has changed since that was made.

        What is subscribed to the patterns of topics that are `led_away` goes in that step, and what was sent to these
        after it would miss that.
        """
        assert self._served is not None
        assert self._drain is not None
        self._served.compare()
        self._drain.close_led_away(led_away)

    async def _delete(self) -> None:
        """Carries out what is to be deleted here."""
        view, engine = self.link.view, self._engine
        assert engine is not None  # rounds begin with `serve`
        if not self._learned:
            if self.link.fault is not None:
                return  # What a former start has deleted is not known yet.
            self.deletions.recall(await self._statuses.learn())
            self._learned = True
            self._todo.add("statuses")
        # In their order: what is done first is not to depend on how names hash.
        wanted = dict.fromkeys(claim for claim, stored in view.configs.items() if stored.record.deleting is not None)
        self._deleting = {claim: told for claim, told in self._deleting.items() if claim in wanted}
        fresh = []
        for number, claim in enumerate(wanted):
            if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                await asyncio.sleep(0)
            stored = view.configs.get(claim)
            entry = self.examined.objects.entries.get((claim.kind, claim.name))
            resource = entry.resource if entry else None
            home = locality.home_of(view, resource) if resource else ""
            if stored is None or stored.record.deleting is None:
                continue
            if resource is not None and (key := locality.home_key(resource)) and self.homes.is_leaving(key):
                continue  # Whose it is has to be known first, and what is there.
            if home in ("", self.name) or (home is None and view.live[:1] == [self.name]):
                before = claim in self.deletions.done
                deletion = self.deletions.settle(engine, claim, stored.record, resource, self._needed(claim))
                if deletion.state == "deleted" and not before:
                    fresh.append(claim)
                if deletion != self._deleting.get(claim):
                    self._deleting[claim] = deletion
                    self._todo.add("deletions")
        if fresh:
            await self._settle(fresh)

    async def _settle(self, deleted: list[Claim]) -> None:
        """Waits until deletions are on disk: what is said to be gone must not come back with a loss of power."""
        assert self._engine is not None  # rounds begin with `serve`
        try:
            await self._engine.durable()
        except RefusedError:
            for claim in deleted:
                self.deletions.done.pop(claim, None)
            raise
        self.link.view.changed.add("deletions")

    def _needed(self, claim: Claim) -> str:
        """Who still needs an object: the destinations of a store. Empty: nobody."""
        if claim.kind != "Store":
            return ""
        return next((one.label for one in self.objects.destinations() if one.spec.store == claim.name), "")

    def _note_back(self) -> None:
        self._is_back = True

    async def _empty(self) -> None:
        """Moves away what can be moved, when this broker is to be emptied."""
        assert self._drain is not None  # rounds begin with `serve`
        drain = self.link.view.drains.get(self.name)
        if drain is None:
            # It may have been closed at its start, by an order that was gone before the first round.
            if self.draining is not None or self._drain.has_closed:
                if self.link.fault is None:
                    await self._drain.follow(self.objects)
                self._drain.hold_again(self.objects)
                await self._apply()
                self._drain.reopen()
                self.draining = None
            return
        if self.link.fault is None:
            parted = self._drain.parted
            self.draining = await self._drain.step(self.objects, drain.record)
            if self._is_back:
                await self._apply()
            if self._drain.parted != parted:
                # What they keep can leave as soon as the engine has parted from them: now, or else in the next round.
                self._todo.add("bridges")
                await self._apply()
                self._awake.set()

    async def _look_after(self) -> None:
        """Now and then: claims what is here and has no home, gives up homes of ours that nothing lives in."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_prune_s or self.link.fault is not None:
            return
        self._next_prune_s = now_s + _PRUNE_S
        engine, view, served = self._engine, self.link.view, self._served
        assert engine is not None  # rounds begin with `serve`
        assert served is not None
        rows = {
            HomeKey(kind, name): row
            for kind in ("queue", "topic")
            for name, row in (await engine.rows_by_and_by(kind)).items()
        }
        served.compare_all(rows)
        if strays := homeless(view, rows):
            _log.warning("homeless_destinations", claimed=[key.name for key in strays[:10]])
            await self.homes.claim_all(dict.fromkeys(strays, self.name), ())
        needed = placement.wanted(self.objects)
        unused = [
            key
            for key in view.homes_on(self.name)
            if key not in needed and key not in rows and now_s - self.homes.claimed_s.get(key, 0.0) >= _UNUSED_S
        ]
        subscribed = engine.subscribed() if any(key.kind == "pattern" for key in unused) else set()
        for key in unused:
            if key.kind != "pattern" or key.name not in subscribed:
                await self.homes.release(key, lambda key=key: engine.is_unused(key))  # type: ignore[misc]

    # --- Saying how it stands

    def _register(self) -> None:
        count = len(self.link.view.homes_on(self.name))
        self._registration.say(
            BrokerRecord(
                addresses=list(self._advertising.urls) or self._listening,
                version=self._version,
                incarnation=self._naming.here,
                started_ms=self._started_ms,
                destinations=count,
            )
        )

    async def _say(self) -> None:
        """What holds for each object since this round; of very many, with pauses for others."""
        view = self.link.view
        for number, (claim, stored) in enumerate(list(view.configs.items())):
            if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                await asyncio.sleep(0)
            if self.examined.judged.get(claim) is not stored:
                continue  # It has changed since this round judged it: the next one speaks.
            status = self._status_of(claim, stored)
            if status is None:
                self._statuses.forget(claim)
            else:
                self._statuses.say(claim, status)
        users = {Claim("User", name): why for name, why in self._refused_users.items()}
        for claim, why in users.items():
            uid = view.users[claim.name].record.owner.uid if claim.name in view.users else ""
            self._statuses.say(claim, refused(uid, 0, Refusal("Invalid", why)))
        over = self._statuses.said - view.configs.keys() - users.keys()
        for claim in sorted(over, key=lambda one: (one.kind, one.name)):
            self._statuses.forget(claim)

    def _say_of_broker(self, revision: int) -> None:
        """`revision` is what this round began with."""
        state = "draining" if self.draining is not None else "serving"
        warnings = [text[:500] for text in self.warnings]
        self._statuses.say_of_broker(
            BrokerStatus(
                applied_revision=revision,
                state=state,
                draining=self.draining,
                warnings=warnings,
                reasons=[text[:500] for text in self.unready()],
                messages=self._counts.total,
                incarnation=self._naming.here,
                certificate=self._certificate,
            )
        )

    def _status_of(self, claim: Claim, stored: Stored) -> ObjectStatus | None:
        """What this broker says of an object; None: it is not its business."""
        view, record = self.link.view, stored.record
        uid = record.asked_by
        refusal = self.examined.refused.get(claim)
        if refusal is not None:
            # Nobody has it: one of all says so.
            return refused(uid, record.generation, refusal) if view.live[:1] == [self.name] else None
        entry = self.examined.objects.entries.get((claim.kind, claim.name))
        deletion = self.deletions.done.get(claim) or self.deletions.blocked.get(claim)
        if deletion is not None and record.deleting is not None:
            return deleted(uid, record.generation, deletion, self.name)
        if entry is None:
            return None
        resource = entry.resource
        home = locality.home_of(view, resource)
        if isinstance(resource, Bridge) and (why := placement.spanning(view, resource)):
            speaks = home == self.name or (home is None and view.live[:1] == [self.name])
            return refused(uid, record.generation, Refusal("SpansHomes", why)) if speaks else None
        if (
            home is None
            and view.live[:1] == [self.name]
            and (why := placement.torn(view, self.examined.objects, resource))
        ):
            return refused(uid, record.generation, Refusal("SpansHomes", why))
        key = locality.home_key(resource) if home is None and view.live[:1] == [self.name] else None
        if key is not None and (why := placement.unknown_broker(view, self.homes.wishes, key)):
            return refused(uid, record.generation, Refusal("BrokerMissing", why))
        if home not in ("", self.name):
            return None
        word = {"Queue": "queue", "Topic": "topic", "DurableSubscription": "durable"}.get(claim.kind, "")
        name = claim.name.partition("/")[2] if word == "durable" else claim.name
        if (error := self._refused_by_engine.get((word, name))) is not None:
            reason = "".join(part.capitalize() for part in error["code"].split("_"))
            return refused(uid, record.generation, Refusal(reason, f"{error['message']} {error['remedy']}"))
        messages = self._counts.of((word, claim.name))
        home_name = self.name if home else ""
        if (partly := self.examined.partly.get(claim)) is not None:
            return refused(uid, record.generation, partly, messages=messages, home=home_name)
        if isinstance(resource, Bridge):
            message = "; ".join(self.local_objects.dangling_bridges.get(resource.metadata.name, ()))[:2_000]
        else:
            message = locality.dead_letters_elsewhere(view, resource, self.name)
        return ObjectStatus(
            uid=uid, generation=record.generation, state="applied", message=message, messages=messages, home=home_name
        )

    async def _count_messages(self) -> None:
        """How many messages are here, now and then: a deletion says what it would destroy."""
        assert self._engine is not None  # rounds begin with `serve`
        if await self._counts.count(self._engine, asyncio.get_running_loop().time()):
            self._todo.add("counts")
