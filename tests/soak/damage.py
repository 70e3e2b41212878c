"""Damage to a store's files while no broker has them open, and what the starts after it say and keep.

It is done to a copy, so that the store itself goes on. A plain start refuses, and then changes nothing, or it serves what
is there; a forced one always serves. Either has to have reported as much as is missing. The plain start after it holds
the same.
"""

import asyncio
import hashlib
import json
import random
import shutil
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import sterna

from tests.running import RunningBroker
from tests.soak.ledger import Ledger
from tests.soak.load import stored
from tests.waiting import eventually_blocking

_BLOCK = 4096
_SECTOR = 512
_START_S = 30.0


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
        self.done = ""

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
        found, reported = await self._held(broker)
        faults += [
            f"after a {'forced' if forced else 'plain'} start: {fault}" for fault in ledger.judge(found, reported)
        ]
        await asyncio.to_thread(broker.terminate if choices.random() < 0.5 else broker.kill)
        broker.flags.pop("force_start", None)
        if not await asyncio.to_thread(_serves, broker):
            return [*faults, f"the plain start afterwards is refused: {broker.stderr[-500:]}"]
        again, _ = await self._held(broker)
        if (gone := _all(found) - _all(again)) or (new := _all(again) - _all(found)):
            faults.append(f"the start afterwards holds something else: without {list(gone)[:3]}, with {list(new)[:3]}")
        return faults

    async def _held(self, broker: RunningBroker) -> tuple[dict[str, list[str]], int | None]:
        async with sterna.connect(f"sterna://{broker.address}", client_id="soak") as connection:
            # Twice: what cannot be read is put aside when somebody wants it.
            await stored(connection)
            found = await stored(connection)
        return found, await asyncio.to_thread(reported, broker)


def reported(broker: RunningBroker) -> int | None:
    """How many records a running broker has reported as lost or damaged since its start; None: unknown how many."""
    with suppress(urllib.error.HTTPError):
        # Whoever asks has damaged places written to the log.
        urllib.request.urlopen(f"{broker.monitor}/readyz", timeout=10).close()
    dropped = broker.ready["recovery"].get("dropped", [])
    if any(one["records"] is None for one in dropped):
        return None
    return sum(one["records"] for one in dropped) + damaged_places(broker.stderr)


def damaged_places(log: str) -> int:
    """How many places a broker's log tells of."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    others = [line["places"] for line in lines if line["event"] == "more_damaged_places_found"]
    return sum(line["event"] == "damaged_place_found" for line in lines) + max(others, default=0)


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
