"""One broker: everything that runs in the process, put together, started and stopped in order.

Start: configuration, engine (its recovery runs in a thread), monitor, gRPC. The port opens last, so that whoever can
connect is served. Stop: say that it ends, wait for clients to leave as long as the drain lasts, end what is left,
close the engine cleanly. A broker that was stopped so has nothing to recover.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from sterna_core import Engine, EngineError, SelectorError, StoreError, selector_check
from sterna_etcd.records import UserRecord
from sterna_resources.problems import ManifestError

from sterna_broker import descriptors
from sterna_broker.access.gate import Gate
from sterna_broker.access.users import UserStore
from sterna_broker.access.watching import Watch
from sterna_broker.addresses import Address, is_loopback
from sterna_broker.cluster.claims import claim_of
from sterna_broker.cluster.configuration import ClusterConfiguration
from sterna_broker.cluster.member import Member
from sterna_broker.configuration.applied import AppliedFolder
from sterna_broker.configuration.catching_up import CatchingUp
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.configuration.objects import Entry
from sterna_broker.configuration.source import DefaultSource, FolderSource, Source
from sterna_broker.kept_for_snapshots import Kept
from sterna_broker.losses import Losses
from sterna_broker.monitor.application import Monitor
from sterna_broker.monitor.metrics import Metrics
from sterna_broker.monitor.readiness import Readiness, judge
from sterna_broker.options import BrokerOptions, Settings, missing_protection, read_settings, restarts, settle
from sterna_broker.pump import Pump
from sterna_broker.server.admin import Administration
from sterna_broker.server.connect import Connect
from sterna_broker.server.cuts import Cuts
from sterna_broker.server.listening import Listener
from sterna_broker.server.naming import Naming
from sterna_broker.server.receiving import Receiving
from sterna_broker.server.sending import Sending
from sterna_broker.server.services import Services
from sterna_broker.statistics import StatisticsSource
from sterna_broker.surroundings import monotonic_ms, wall_ms
from sterna_broker.tickets import TicketDesk
from sterna_broker.version import VERSION
from sterna_broker.whole import to_its_end

_log = structlog.get_logger(part="broker")

LOG_FOLDER = "log"
APPLIED_FOLDER = "applied"

# What is left of the drain for calls that have been told to end.
_LAST_CALLS_S = 1.0


@dataclass
class _Parts:
    """What exists once the broker serves."""

    engine: Engine
    gate: Gate
    pump: Pump
    connect: Connect
    sending: Sending
    receiving: Receiving
    cuts: Cuts
    services: Services
    listener: Listener
    monitor: Monitor
    statistics: StatisticsSource
    losses: Losses
    kept: Kept
    catching_up: CatchingUp


@dataclass(frozen=True)
class Makers:
    """What makes the parts of a node that touch disk and network; a simulation has others."""

    engine: Callable[[str, str, int, int], Engine] = Engine.open
    """Of the log's folder, the settings, and the time of both clocks. May take long: it runs in a thread."""

    listener: Callable[..., Listener] = Listener
    monitor: Callable[..., Monitor] = Monitor


_OWN = Makers()


_RESTLESS = (
    "the files of the configuration folder have not been the same for two seconds for a while: none of their changes is"
    " in force; write them less often, or send SIGHUP to have them read as they are"
)


class Node:
    """See the module. `start`, then `stop`, each once."""

    def __init__(self, options: BrokerOptions, makers: Makers = _OWN) -> None:
        self.options = options
        self._makers = makers
        self.messaging: Address | None = None
        self.monitor: Address | None = None
        self.recovery: dict[str, Any] = {}
        self._state = "starting"
        self._damage_told = self._damage_total = 0
        self._settings: Settings | None = None
        self._parts: _Parts | None = None
        self._hurry = asyncio.Event()
        self.failed = asyncio.Event()
        self.failure = ""
        """Why it cannot go on, once `failed` is set."""

        self._opening: asyncio.Future[Engine] | None = None
        self.users = UserStore()
        self.gate: Gate | None = None
        applied = AppliedFolder(options.data / APPLIED_FOLDER)
        self.member: Member | None = None
        self.live: LiveConfiguration
        self._folder: Watch | None = None
        if options.cluster is not None:
            self.member = Member(options.cluster, options.data, VERSION, _check_selector)
            self.member.on_users = self._take_users
            self.live = ClusterConfiguration(self.member, applied, _check_selector)
        else:
            source: Source = FolderSource(options.config) if options.config else DefaultSource()
            self.live = LiveConfiguration(source, applied, _check_selector)
            if isinstance(source, FolderSource):
                # Made before the folder is read for the first time.
                self._folder = Watch(source.files, self._read_folder, settles=True)

    @property
    def state(self) -> str:
        """One of "starting", "serving", "draining" and "stopped"."""
        return self._state

    @property
    def settings(self) -> Settings:
        """What holds, once the broker has started."""
        assert self._settings is not None, "the broker has not started"
        return self._settings

    async def start(self) -> None:
        """Until this returns nobody is served. When it fails, or is cancelled, nothing of it is left.

        Raises:
            ManifestError: the configuration is wrong.
            KeptError: the configuration kept from the cluster cannot be used.
            NameTakenError: another broker of the cluster has this one's name.
            AddressError: an address cannot be used.
            AccessError: certificates or users cannot be used.
            StoreError: the store is locked or damaged (of sterna_core).
            EngineError: the engine refuses the configuration (of sterna_core).
            ListenError: a port cannot be had.
            OSError: the data folder cannot be made.
        """
        try:
            await self._start()
        except BaseException:
            await to_its_end(self._give_up())
            raise

    async def _give_up(self) -> None:
        """Ends what has begun to start. An engine that is being opened is ended when it is open: nothing stops that."""
        engine: Engine | None = None
        if self._opening is not None:
            await asyncio.wait((self._opening,))
            if self._opening.exception() is None:
                engine = self._opening.result()
        await self._stop_parts(engine)
        self._parts = None
        self._state = "stopped"

    async def _start(self) -> None:
        volume_bytes = await asyncio.to_thread(_make_folders, self.options.data)
        if self.member is not None:
            await self.member.start()
        objects = await self.live.load()
        manifest = objects.broker
        if self.options.settings is not None:
            manifest = await asyncio.to_thread(read_settings, self.options.settings)
        if self.member is None:
            self.live.restarts = restarts(self.options, manifest)
        self._settings = settings = settle(self.options, manifest, VERSION, volume_bytes)
        self.gate = gate = Gate(self.options, self.users)
        if self.member is not None:
            gate.on_certificates = self.member.shows
        await gate.open()
        self._warn_if_open(settings)
        began_ms = monotonic_ms()
        folder = self.options.data / LOG_FOLDER
        opening = asyncio.to_thread(self._makers.engine, str(folder), settings.engine_json(), wall_ms(), monotonic_ms())
        self._opening = asyncio.ensure_future(opening)
        engine = await asyncio.shield(self._opening)
        recovery = json.loads(engine.recovery())
        self.recovery = {
            **recovery,
            "messages": json.loads(engine.statistics())["messages"],
            "dropped_records": sum(dropped["records"] or 0 for dropped in recovery["dropped"]),
            "duration_ms": monotonic_ms() - began_ms,
        }
        for dropped in recovery["dropped"]:
            _log.warning("damaged_record_dropped", **dropped)
        for renamed in recovery["renamed"]:
            _log.warning("queue_recovered_without_its_name", **renamed)
        await self._start_around(engine, settings, gate)
        self._state = "serving"
        parts = self._parts
        assert parts is not None  # made just now
        parts.statistics.state = "serving"
        await parts.listener.set_serving(serving=True)

    def _warn_if_open(self, settings: Settings) -> None:
        missing = missing_protection(replace(self.options, insecure=False))
        for address in (settings.messaging, settings.monitor):
            if missing and not is_loopback(address.host):
                _log.warning("listening_insecurely", address=str(address), missing=missing)

    async def _start_around(self, engine: Engine, settings: Settings, gate: Gate) -> None:
        desk = self.member.desk if self.member else None
        pump = Pump(engine, TicketDesk(lambda: self.live.objects, gate.greet, desk).answer, self._fail)
        statistics = StatisticsSource(pump, VERSION, wall_ms(), self.recovery, self.options.data)
        pump.on_damage = lambda: self._tell_damage(statistics.engine())
        # Whole, as at the start: what became due meanwhile is judged by what holds, so that this comes before the time.
        self.live.connect(pump.engine.configure, lambda text: pump.tick().reconfigure(text))
        limits = settings.limits
        connect = Connect(
            pump,
            frame_bytes=limits.frame_bytes,
            connections=limits.connections,
            slow_consumer_ms=settings.slow_consumer_ms,
        )
        sending, receiving = Sending(pump), Receiving(pump, limits.leases)
        administration = Administration(pump, self.live, statistics, desk)
        cuts = Cuts(pump, self.live, settings.name, *self._cluster_of_cuts())
        services = Services(connect, sending, receiving, administration, cuts, Naming(self.live), gate.admit_call)
        metrics = Metrics(pump, statistics, settings.metrics_destinations, self.member)
        kept = Kept(pump, settings.engine["snapshot_bytes_max"], settings.engine["snapshot_age_max_ms"])
        metrics.kept, metrics.refused, metrics.cut = kept, services.refused, connect.cut
        metrics.dangling_bridges = lambda: len(self.live.dangling_bridges)
        at_once = descriptors.shares(descriptors.limit(), limits.connections)
        monitor = self._makers.monitor(self.readiness, lambda: self._state, metrics, gate, at_once.monitor)
        listener = self._makers.listener(
            services,
            limits.frame_bytes,
            connections_max=at_once.messaging,
            tls=gate.tls,
            reflects=self.options.reflection,
        )
        self._parts = parts = _Parts(
            engine,
            gate,
            pump,
            connect,
            sending,
            receiving,
            cuts,
            services,
            listener,
            monitor,
            statistics,
            losses=Losses(pump, kept.tell),
            kept=kept,
            catching_up=CatchingUp(self.live, pump.touch),
        )
        pump.start()
        parts.losses.start()
        parts.kept.start()
        parts.catching_up.start()
        if self.member is None:
            # A member is given what is its own once it knows the cluster.
            await self.live.has_room()
        if self.member is not None and isinstance(self.live, ClusterConfiguration):
            self.member.attach(pump, self.live)
            self.member.unready = lambda: self.readiness().reasons
            self.member.kept_warnings = kept.warnings
        gate.start(pump)
        if self._folder is not None:
            self._folder.start()
        connect.start()
        self.monitor = await monitor.start(settings.monitor)
        self.messaging = await listener.start(settings.messaging)
        if self.member is not None and isinstance(self.live, ClusterConfiguration):
            addresses = [f"sterna{'s' if gate.tls else ''}://{self.messaging}"]
            await self.member.serve(self.live, addresses, self._leave)

    def _cluster_of_cuts(self) -> tuple[str, Callable[[Entry], int]]:
        """The cluster's name, and what tells an object's revision there: nobody counts those of a folder."""
        member = self.member
        if member is None or self.options.cluster is None:
            return "", lambda _: 0

        def revision(entry: Entry) -> int:
            stored = member.examined.judged.get(claim_of(entry.resource))
            return stored.revision if stored is not None else 0

        return self.options.cluster.cluster, revision

    def readiness(self) -> Readiness:
        """Whether clients should come, and why not."""
        statistics = self._parts.statistics.engine() if self._parts and self._state != "stopped" else None
        if self.member is not None:
            warnings = self.member.warnings
        else:
            warnings = [*self.live.warnings, *(self._parts.kept.warnings() if self._parts else [])]
            if self._folder is not None and self._folder.is_restless:
                warnings.append(_RESTLESS)
        return judge(self._state, statistics, warnings)

    def _tell_damage(self, statistics: dict[str, Any]) -> None:
        """Logs damaged places, the first ones each once; of the others how many there are."""
        places, total = statistics["log"]["damage"], statistics["log"]["damaged_places"]
        for place in places[self._damage_told :]:
            _log.error("damaged_place_found", **place)
        if total > max(self._damage_total, len(places)):
            _log.error("more_damaged_places_found", places=total - len(places))
        self._damage_told, self._damage_total = max(self._damage_told, len(places)), max(self._damage_total, total)

    def _take_users(self, users: dict[str, UserRecord]) -> dict[str, str]:
        records = {
            name: {"credentials": [one.model_dump() for one in user.credentials]} for name, user in users.items()
        }
        return self.users.replace(records)

    def _fail(self, why: str) -> None:
        self._end("engine_failed", why)

    def _leave(self, why: str) -> None:
        self._end("cannot_be_a_member", why)

    def _end(self, event: str, why: str) -> None:
        """There is nothing that it could do by itself; the first reason is told."""
        if not self.failed.is_set():
            _log.critical(event, error=why)
            self.failure = why
            self.failed.set()

    def hurry(self) -> None:
        """Cuts a drain short."""
        self._hurry.set()

    async def reload(self) -> None:
        """Reads the configuration again, and certificates and users.

        Raises:
            ManifestError: it is wrong; then nothing changes.
        """
        if self.gate is not None:
            await self.gate.reload()
        await self._reload_live()

    async def _reload_live(self) -> None:
        await self.live.reload()
        if self._parts is not None:
            self._parts.pump.touch()
            await self.live.has_room()

    async def told_to_reload(self) -> None:
        """As `reload`; what is wrong is logged, once."""
        if self._folder is None:
            await _telling(self.reload())
            return
        if self.gate is not None:
            await self.gate.reload()
        await self._folder.look(anyway=True)

    async def _read_folder(self) -> bool:
        """A file of the configuration folder has changed. What cannot be used is read again when it changes again."""
        # Not left in the middle when the broker stops.
        await _telling(to_its_end(self._reload_live()))
        return True

    async def stop(self) -> None:
        """Drains and ends. What is confirmed is on disk."""
        parts = self._parts
        if parts is None or self._state == "stopped":
            return
        self._state = parts.statistics.state = "draining"
        await parts.listener.set_serving(serving=False)
        parts.services.accepting = False
        parts.cuts.stop()
        drain_ms = 0 if self._hurry.is_set() else self.settings.drain_ms
        parts.pump.tick().go_away("SHUTTING_DOWN", [], drain_ms)
        parts.pump.touch()
        _log.info("draining", connections=parts.connect.calls, drain_ms=drain_ms)
        await self._drain(parts, drain_ms / 1000)
        # Nobody may have probed since it was found.
        self._tell_damage(parts.statistics.engine())
        parts.losses.tell()
        await self._stop_parts(parts.engine)
        self._state = "stopped"
        _log.info("stopped")

    async def _drain(self, parts: _Parts, drain_s: float) -> None:
        drained = asyncio.create_task(parts.connect.drain(drain_s))
        hurried = asyncio.create_task(self._hurry.wait())
        await asyncio.wait((drained, hurried), return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, hurried):
            task.cancel()
        await asyncio.gather(drained, hurried, return_exceptions=True)

    async def _stop_parts(self, engine: Engine | None) -> None:
        parts = self._parts
        if self._folder is not None:
            await self._folder.stop()
        if self.member is not None:
            await self.member.stop()
        if parts is not None:
            parts.losses.stop()
            parts.kept.stop()
            parts.catching_up.stop()
            parts.receiving.stop()
            parts.sending.stop()
            await parts.connect.stop()
            await parts.listener.stop(_LAST_CALLS_S)
            await parts.monitor.stop()
            parts.pump.stop()
        if self.gate is not None:
            await self.gate.stop()
        if engine is None:
            return
        try:
            # The last commit is synced here, and the engine's threads end.
            await asyncio.to_thread(engine.stop)
        except StoreError as error:
            self._fail(error.message)


def _make_folders(data: Path) -> int:
    """The data folder and the log's, for nobody else to read; the size of their volume in bytes."""
    data.parent.mkdir(parents=True, exist_ok=True)
    for folder in (data, data / LOG_FOLDER):
        folder.mkdir(mode=0o700, exist_ok=True)
    system = os.statvfs(data)
    return system.f_blocks * system.f_frsize


def _check_selector(text: str) -> None:
    try:
        selector_check(text)
    except SelectorError as error:
        raise ValueError(error.message, error.offset) from error


async def _telling(reading: Awaitable[None]) -> None:
    """Logs why a configuration could not be read again, which changes nothing."""
    try:
        await reading
    except (ManifestError, EngineError, OSError) as error:
        _log.error("configuration_not_reloaded", error=str(error))
