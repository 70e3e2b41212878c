"""Damage to a store's files while no broker has them open, and what the starts after it say and keep.

It is done to a copy, so that the store itself goes on. A plain start refuses, and then changes nothing, or it serves
what is there; a forced one always serves. Either has to have reported as much as is missing, and where it was. The
plain start after it holds the same.
"""

import asyncio
import hashlib
import json
import random
import re
import shutil
import struct
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sterna

from tests.running import RunningBroker
from tests.soak.ledger import Ledger
from tests.soak.load import stored
from tests.waiting import eventually_blocking

_BLOCK = 4096
_SECTOR = 512
_START_S = 30.0
# Checksum, length, position, and eighths of the padding behind a record, in its header.
_RECORD, _HEADER_BYTES = struct.Struct("<IIQ13xB"), 32
_KEY = re.compile(rb"([prtvm][0-9]+) x")
_PLACES = re.compile(r"^sterna_log_damaged_places ([0-9.e+]+)$", re.MULTILINE)
# Damage is told within a second of when it was met; a busy machine is given more.
_TELLS_S, _TELLS_PAUSE_S = 15.0, 0.05


def do_damage(folder: Path, older: Path, how: str, choices: random.Random) -> str:
    """Damages one of a log's files, or two; says what was done, empty when there is nothing to do it to."""
    files = sorted(path for path in folder.iterdir() if path.name != "lock" and path.stat().st_size > 0)
    # Segments in the order of their use; half of all damage hits those that hold something, half anything.
    used = [path for path in files if path.suffix == ".segment" and _used_blocks(path.read_bytes())]
    path = choices.choice(used if choices.random() < 0.5 and used else files)
    match how:
        case "flip":
            return _flip(path, choices)
        case "cut":
            return _cut(path, choices)
        case "zero":
            return _zero(path, choices)
        case "remove":
            path.unlink()
            return f"removed {path.name}"
        case "swap":
            return _swap(path, [other for other in files if other.suffix == path.suffix and other != path], choices)
        case "older":
            return _older(files, older, choices)
    raise ValueError(how)


def _used_blocks(content: bytes) -> list[int]:
    return [at for at in range(0, len(content), _BLOCK) if content[at : at + _BLOCK].strip(b"\0")]


def _place(path: Path, choices: random.Random) -> int:
    """Where something is written, most of the time."""
    used = _used_blocks(path.read_bytes())
    if not used or choices.random() < 0.1:
        return choices.randrange(path.stat().st_size)
    return min(choices.choice(used) + choices.randrange(_BLOCK), path.stat().st_size - 1)


def _flip(path: Path, choices: random.Random) -> str:
    content = bytearray(path.read_bytes())
    places = [_place(path, choices) for _ in range(choices.choice((1, 1, 2, 8)))]
    for place in places:
        content[place] ^= 1 << choices.randrange(8)
    path.write_bytes(content)
    return f"flipped bits of {path.name} at {sorted(places)}"


def _cut(path: Path, choices: random.Random) -> str:
    length = _place(path, choices)
    if choices.random() < 0.5:
        length -= length % _BLOCK
    with path.open("r+b") as file:
        file.truncate(length)
    return f"cut {path.name} to {length} bytes"


def _zero(path: Path, choices: random.Random) -> str:
    unit = choices.choice((_SECTOR, _BLOCK))
    at = _place(path, choices) // unit * unit
    length = min(unit * choices.choice((1, 1, 4, 32)), path.stat().st_size - at)
    if choices.random() < 0.1:
        at, length = 0, path.stat().st_size
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(length))
    return f"zeroed {length} bytes of {path.name} at {at}"


def _swap(path: Path, others: list[Path], choices: random.Random) -> str:
    if not others:
        return ""
    other = choices.choice(others)
    third = path.with_name("third")
    path.rename(third)
    other.rename(path)
    third.rename(other)
    return f"swapped {path.name} and {other.name}"


def _older(files: list[Path], older: Path, choices: random.Random) -> str:
    differ = [path for path in files if (older / path.name).exists() and _differs(path, older / path.name)]
    if not differ:
        return ""
    path = choices.choice(differ)
    shutil.copyfile(older / path.name, path)
    return f"put an older {path.name} in its place"


def _differs(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


class AtRest:
    """One damage to a copy of a store in `data`, and the verdict on its starts."""

    def __init__(self, folder: Path, manifests: Iterable[str], data: Path, older: Path) -> None:
        self._folder = folder
        self._manifests = tuple(manifests)
        self._data = data
        self._older = older
        self.done = self.note = ""

    async def judge(self, how: str, choices: random.Random, ledger: Ledger) -> list[str]:
        """What is wrong."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        await asyncio.to_thread(shutil.copytree, self._data, self._folder / "data")
        log = self._folder / "data" / "log"
        self.done = await asyncio.to_thread(do_damage, log, self._older, how, choices)
        if not self.done:
            return []
        broker = RunningBroker(self._folder, self._manifests)
        try:
            return [f"{self.done}: {fault}" for fault in await self._starts(broker, log, choices, ledger)]
        finally:
            await asyncio.to_thread(broker.stop)

    async def _starts(self, broker: RunningBroker, log: Path, choices: random.Random, ledger: Ledger) -> list[str]:
        before = await asyncio.to_thread(_digests, log)
        faults = []
        if not await asyncio.to_thread(_serves, broker):
            faults = await asyncio.to_thread(_refusal, broker, before, log)
            broker.flags["force_start"] = True
            if not await asyncio.to_thread(_serves, broker):
                return [*faults, f"a forced start is refused: {broker.stderr[-500:]}"]
        forced = "force_start" in broker.flags
        found = await self._held(broker)
        report = await asyncio.to_thread(reported, broker)
        verdict = ledger.verdict(found)
        wrong = verdict.told(report.records)
        # Of the others more records than those with the message itself decide where they are.
        lost = {key for queue in ("plain", "again", "durable") for key in verdict.lost.get(queue, ())}
        self.note = f"{'forced' if forced else 'plain'}, reported {report.records}, lost {len(lost)}"
        if outside := report.outside(lost, await asyncio.to_thread(positions_of_keys, self._data / "log")):
            wrong.append(f"lost where nothing is reported: {len(outside)}, the first {outside[0]}; {report.stretches}")
        faults += [f"after a {'forced' if forced else 'plain'} start: {fault}" for fault in wrong]
        await asyncio.to_thread(broker.terminate if choices.random() < 0.5 else broker.kill)
        broker.flags.pop("force_start", None)
        if not await asyncio.to_thread(_serves, broker):
            return [*faults, f"the plain start afterwards is refused: {broker.stderr[-500:]}"]
        again = await self._held(broker)
        if (gone := _all(found) - _all(again)) or (new := _all(again) - _all(found)):
            faults.append(f"the start afterwards holds something else: without {list(gone)[:3]}, with {list(new)[:3]}")
        return faults

    async def _held(self, broker: RunningBroker) -> dict[str, list[str]]:
        async with sterna.connect(f"sterna://{broker.address}", client_id="soak") as connection:
            # Twice: what cannot be read is put aside when somebody wants it.
            await stored(connection)
            return await stored(connection)


@dataclass
class Report:
    """What a broker has said since its start of what is lost or damaged."""

    records: int | None
    """None: unknown how many."""

    stretches: list[tuple[int, int]]
    """Where in the log, from and to."""

    more: int = 0
    """Places and messages of which it says that they are, and not where."""

    def outside(self, lost: set[str], positions: dict[str, set[int]]) -> list[str]:
        """Keys that are lost although nothing is reported there."""
        if self.more:
            return []
        return sorted(key for key in lost if not any(map(self._covers, positions.get(key, ()))))

    def _covers(self, position: int) -> bool:
        return any(begin <= position < end for begin, end in self.stretches)


def reported(broker: RunningBroker) -> Report:
    """What a running broker has reported. Its log says where the damage is that it counts, a second later at most.

    Raises:
        OSError: it is not there any more to be asked.
        AssertionError: it keeps from its log what it has met.
    """
    met = _places_met(broker)

    def is_told() -> bool:
        assert broker.process is not None
        # Whoever ends tells no more than it has told by then.
        return damaged_places(broker.stderr) >= met or broker.process.poll() is not None

    eventually_blocking(is_told, timeout_s=_TELLS_S, what=f"a word of {met} damaged places", pause_s=_TELLS_PAUSE_S)
    recovery = broker.ready["recovery"]
    dropped = recovery.get("dropped", [])
    places = events(broker.stderr, "damaged_place_found")
    more = max((line["places"] for line in events(broker.stderr, "more_damaged_places_found")), default=0)
    stretches = [(one["position"], one["position"] + one["bytes"]) for one in dropped]
    # Messages of a queue whose name is lost: they are there, under another name.
    elsewhere = [one["messages"] for one in recovery.get("renamed", [])]
    stretches += [(one["position"], one["position"] + 1) for one in places]
    known = [one["records"] for one in dropped]
    lost = None if None in known else sum(known) + len(places) + more + sum(elsewhere)
    return Report(lost, stretches, more + sum(elsewhere))


def _places_met(broker: RunningBroker) -> int:
    """How many damaged places a running broker counts."""
    with urllib.request.urlopen(f"{broker.monitor}/metrics", timeout=10) as answer:
        [count] = _PLACES.findall(answer.read().decode())
    return int(float(count))


def positions_of_keys(log: Path) -> dict[str, set[int]]:
    """Where in a log's files, as docs/log-format.md has them, the keys of messages are."""
    found: dict[str, set[int]] = defaultdict(set)
    for path in log.glob("*.segment"):
        content = path.read_bytes()
        at = _BLOCK
        while at + _RECORD.size <= len(content):
            _, length, position, slack = _RECORD.unpack_from(content, at)
            if not _HEADER_BYTES <= length <= len(content) - at:
                # Zeros up to the next block, where a group commit may begin.
                at = at // _BLOCK * _BLOCK + _BLOCK
                continue
            for key in _KEY.findall(content, at + _HEADER_BYTES, at + length):
                found[key.decode()].add(position)
            at += -(-length // 8) * 8 + slack * 8
    return found


def damaged_places(log: str) -> int:
    """How many places a broker's log tells of."""
    more = max((line["places"] for line in events(log, "more_damaged_places_found")), default=0)
    return len(events(log, "damaged_place_found")) + more


def events(log: str, name: str) -> list[dict[str, Any]]:
    """The lines of a broker's log with this event."""
    # The last line may be under way.
    lines = [json.loads(line) for line in log.split("\n")[:-1] if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def _all(found: dict[str, list[str]]) -> Counter[str]:
    """What is on disk, wherever: a message may be put aside meanwhile, and what is fleeting is gone."""
    return Counter(key for queue, keys in found.items() if queue != "fleeting" for key in keys if key[0] != "v")


def _serves(broker: RunningBroker) -> bool:
    """Whether it starts; otherwise it has ended."""
    broker.launch()
    process = broker.process
    assert process is not None

    def is_decided() -> bool:
        return process.poll() is not None or broker.has_started

    eventually_blocking(is_decided, timeout_s=_START_S, what="a start or its refusal")
    return process.poll() is None


def _refusal(broker: RunningBroker, before: dict[str, str], log: Path) -> list[str]:
    faults = []
    if broker.wait() != 1 or "--force-start" not in broker.stderr:
        faults.append(f"refused with {broker.wait()}, and no word of a forced start: {broker.stderr[-500:]}")
    if _digests(log) != before:
        faults.append("a refused start changed files")
    return faults


def _digests(log: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in log.iterdir() if path.name != "lock"}
