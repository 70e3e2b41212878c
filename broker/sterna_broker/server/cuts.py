"""Cuts for snapshots: begun, handed out piece by piece to one exporter at a time, confirmed.

The engine writes a cut beside its log and keeps it until it is confirmed or given up for space; here it is only read,
off the event loop and no faster than the caller takes it. Whoever reads holds the cut: of two exporters that write to
one place each would take the other's files for remains. The hold is the call itself: it ends with whoever has it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import structlog
from sterna_core import EngineError

from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_broker.contract import admin
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError, shutting_down
from sterna_broker.surroundings import monotonic_ms, random_bytes

_log = structlog.get_logger(part="snapshots")

WAIT_MS_MAX = 60_000
_MANIFEST_BYTES = 32
# What a caller's gRPC takes by default is 4 MiB.
_PART_BYTES = 1024 * 1024
# How often it is looked whether a cut is whole. Nobody else waits for it.
_LOOK_S = 0.05
_MANIFESTS_AT_ONCE = 200

Facts = dict[str, Any]
Piece = tuple[str, str, int, bytes]


@dataclass
class _Hold:
    """A call that reads the cut with these facts."""

    facts: Facts
    since_ms: int = field(default_factory=monotonic_ms)
    # Chance, so that nobody confirms with what an earlier process gave out.
    number: int = field(default_factory=lambda: int.from_bytes(random_bytes(8)) | 1)
    # Set when it was confirmed, and when the broker stops.
    over: asyncio.Event = field(default_factory=asyncio.Event)
    manifest: bytes = b""


class Cuts:
    """The handlers of the calls that concern cuts."""

    def __init__(
        self,
        pump: Pump,
        live: LiveConfiguration,
        broker: str,
        cluster: str = "",
        revision: Callable[[Entry], int] = lambda _: 0,
    ) -> None:
        self._pump = pump
        self._live = live
        self._broker, self._cluster = broker, cluster
        self._revision = revision
        self._hold: _Hold | None = None
        # The last one, for whoever has not heard the answer and says it again.
        self._confirmed: _Hold | None = None
        # What was configured when the cut that waits was begun; None: an earlier process began it, and nobody kept it.
        self._configured: ObjectSet | None = None
        self._stopping = False

    async def begin(self, request: admin.BeginCutRequest) -> admin.BeginCutResponse:
        """Begins the next cut, or finds the one that waits; waits a while for it to be whole.

        Raises:
            RefusedError: it was given up.
            EngineError: the disk is full.
        """
        if request.wait_ms > WAIT_MS_MAX:
            message = f"wait_ms is {request.wait_ms}, at most {WAIT_MS_MAX} is allowed."
            raise RefusedError("INVALID_ARGUMENT", "wait_ms", message, "Wait for less, and ask again.")
        facts = self._begin()
        until_ms = monotonic_ms() + request.wait_ms
        while facts["progress"] == "making" and monotonic_ms() < until_ms:
            await asyncio.sleep(_LOOK_S)
            facts = self._facts()
        if facts["progress"] == "making":
            return admin.BeginCutResponse(number=facts["number"])
        if facts["progress"] != "ready":
            raise _given_up(facts)
        return admin.BeginCutResponse(number=facts["number"], cut=self._message(facts))

    async def read(self, request: admin.ReadCutRequest) -> AsyncGenerator[admin.ReadCutResponse, None]:
        """Holds the cut and tells all of it; ends when it is confirmed.

        Raises:
            RefusedError: somebody else holds it, it is not that cut any more, or the broker stops.
            EngineError: a file is damaged.
        """
        hold = self._take(request)
        try:
            yield admin.ReadCutResponse(held=admin.CutHeld(hold=hold.number, cut=self._message(hold.facts)))
            async with aclosing(self._pieces(hold)) as pieces:
                async for piece in pieces:
                    yield admin.ReadCutResponse(piece=piece)
            for entries in self._configuration():
                for some in await asyncio.to_thread(self._manifests, entries):
                    yield admin.ReadCutResponse(configuration=some)
            self._check(hold)
            yield admin.ReadCutResponse(end=admin.CutEnd(rows=hold.facts["rows"]))
            await hold.over.wait()
            if self._stopping:
                raise shutting_down()
        finally:
            self._hold = None

    async def confirm(self, request: admin.ConfirmCutRequest) -> admin.ConfirmCutResponse:
        """Notes that the cut that is held was kept; returns when that is durable.

        Raises:
            RefusedError: the caller does not hold it, or it is not there any more.
            EngineError: the log takes no record.
        """
        if len(request.manifest) != _MANIFEST_BYTES:
            message = f"manifest has {len(request.manifest)} bytes, a SHA-256 has {_MANIFEST_BYTES}."
            raise RefusedError("INVALID_ARGUMENT", "manifest", message, "Give the hash of the manifest's bytes.")
        known = (hold for hold in (self._hold, self._confirmed) if hold is not None)
        hold = next((hold for hold in known if hold.number == request.hold), None)
        if hold is None:
            message = "This cut is not held by the call that is named: it has ended."
            raise RefusedError("CONFLICT", "hold", message, "Read the cut again, then confirm it.", retryable=True)
        if hold.facts["number"] != request.number:
            message = f"The cut that is held is {hold.facts['number']}, not {request.number}."
            raise RefusedError("INVALID_ARGUMENT", "number", message, "Confirm the cut that was read.")
        if hold.manifest != request.manifest:
            self._check(hold)
            self._pump.tick().confirm_cut(request.number, request.manifest)
            hold.manifest = request.manifest
            self._confirmed = hold
            self._pump.touch()
        await self._pump.durable()
        if not hold.over.is_set():
            hold.over.set()
            _log.info("cut_exported", cut=request.number, manifest=request.manifest.hex())
        return admin.ConfirmCutResponse()

    def stop(self) -> None:
        """The broker stops: whoever reads is told so, and nobody begins."""
        self._stopping = True
        if self._hold is not None:
            self._hold.over.set()

    def _begin(self) -> Facts:
        """Begins a cut if none waits, and remembers what is configured: what comes later belongs to the next one."""
        is_new = self._facts()["progress"] not in ("making", "ready")
        facts: Facts = json.loads(self._pump.tick().begin_cut())
        if is_new:
            self._configured = self._live.objects
        self._pump.touch()
        return facts

    def _facts(self) -> Facts:
        facts: Facts = json.loads(self._pump.engine.cut_progress())
        return facts

    def _take(self, request: admin.ReadCutRequest) -> _Hold:
        if self._stopping:
            raise shutting_down()
        if self._hold is not None:
            for_s = (monotonic_ms() - self._hold.since_ms) // 1000
            message = f"Another exporter has been reading cut {self._hold.facts['number']} for {for_s} s."
            raise RefusedError("IN_USE", "cut", message, "Try again when it has ended.", retryable=True)
        facts = self._facts()
        asked = {"store": request.store_id, "number": request.number, "position": request.position}
        if facts["progress"] != "ready" or any(facts[name] != value for name, value in asked.items()):
            message = f"Cut {request.number} at position {request.position} does not wait to be exported any more."
            raise RefusedError("CONFLICT", "cut", message, "Begin a cut, and read that one.", retryable=True)
        self._hold = _Hold(facts)
        return self._hold

    def _check(self, hold: _Hold) -> None:
        """Looks whether the cut is as it was when it was taken hold of.

        Raises:
            RefusedError: it is not, or the broker stops.
        """
        if self._stopping:
            raise shutting_down()
        facts = self._facts()
        if _identity(facts) == _identity(hold.facts):
            return
        if facts.get("number") != hold.facts["number"] or facts.get("position") != hold.facts["position"]:
            raise _given_up(facts)
        message = "Some of the events before the cut were given up while it was read."
        raise RefusedError("CONFLICT", "cut", message, "Read the cut again; it says which are missing.", retryable=True)

    async def _pieces(self, hold: _Hold) -> AsyncGenerator[admin.CutPiece, None]:
        """All pieces, large ones in parts. One is in memory at a time: the next is read when this one was taken."""
        read_next = self._pump.engine.open_cut(hold.facts["number"]).next
        while (piece := await self._next(read_next, hold)) is not None:
            folder, table, rows, stream = piece
            for start in range(0, len(stream), _PART_BYTES):
                yield admin.CutPiece(
                    folder=folder,
                    table=table,
                    rows=rows,
                    data=stream[start : start + _PART_BYTES],
                    goes_on=start + _PART_BYTES < len(stream),
                )
                if self._stopping:
                    raise shutting_down()

    async def _next(self, read_next: Callable[[], Piece | None], hold: _Hold) -> Piece | None:
        try:
            return await asyncio.to_thread(read_next)
        except EngineError:
            # Its files go when it is given up: then it is that which is to be said.
            self._check(hold)
            raise

    def _configuration(self) -> Iterator[list[Entry]]:
        """All that was configured at the cut, some at a time; the set itself never changes."""
        objects = self._live.objects if self._configured is None else self._configured
        entries = iter(objects.entries.values())
        while some := list(islice(entries, _MANIFESTS_AT_ONCE)):
            yield some

    def _manifests(self, entries: list[Entry]) -> list[admin.CutConfiguration]:
        found: list[admin.CutConfiguration] = []
        size = _PART_BYTES
        for entry in entries:
            document = entry.resource.document()
            spec = json.dumps(document.get("spec", {}), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            kind, name = entry.key
            manifest = admin.CutManifest(kind=kind, name=name, revision=self._revision(entry), spec=spec)
            if size + manifest.ByteSize() > _PART_BYTES:
                found.append(admin.CutConfiguration())
                size = 0
            size += manifest.ByteSize()
            found[-1].manifests.append(manifest)
        return found

    def _message(self, facts: Facts) -> admin.Cut:
        cut = admin.Cut(
            cluster=self._cluster,
            broker=self._broker,
            store_id=facts["store"],
            previous_manifest=bytes.fromhex(facts["previous"] or ""),
            events=[admin.CutRange(start=start, end=end) for start, end in _joined(facts["events"])],
        )
        for name in ("number", "epoch", "position", "previous_position", "time_ms", "schema", "rows", "bytes"):
            setattr(cut, name, facts[name])
        for gap in facts["gaps"]:
            cut.gaps.add(range=admin.CutRange(start=gap["from"], end=gap["to"]), reason=gap["reason"])
        return cut


def _identity(facts: Facts) -> tuple[Any, ...]:
    """What has to stay as it is while a cut is read."""
    return tuple(facts.get(name) for name in ("progress", "store", "number", "position", "events", "gaps"))


def _joined(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges that adjoin as one: how many files there are is the broker's own business."""
    found: list[list[int]] = []
    for start, end in ranges:
        if found and found[-1][1] == start:
            found[-1][1] = end
        else:
            found.append([start, end])
    return found


def _given_up(facts: Facts) -> RefusedError:
    why = facts.get("why") or "it does not wait any more"
    return RefusedError("CONFLICT", "cut", f"The cut was given up: {why}.", "Take another one.", retryable=True)
