"""Where `sterna send` has its messages from: arguments, files, stdin, lines, JSON lines.

Lines are read by a thread of their own, so that what `tail -f` gives is sent as it comes, and an interruption need
not wait for the next line.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import sterna
from sterna.cli.exits import CommandError, usage
from sterna.cli.messages import Outgoing, body_in, outgoing
from sterna.cli.tally import Place

_CHUNK_BYTES: Final = 64 * 1024
#: So many chunks are read ahead of what is sent.
_CHUNKS_AHEAD: Final = 4
#: A line beyond this is no message: no broker takes so much.
_LINE_BYTES_MAX: Final = 256 * 1024 * 1024


class Placed(NamedTuple):
    """A message and where it came from."""

    place: Place
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Sources:
    """Where messages come from; at most one of them is given, and without any it is stdin, as one message."""

    texts: list[str]
    files: list[Path]
    lines: str
    jsonl: str
    body_type: str

    @property
    def noun(self) -> str:
        """What the messages are called by: a line, an argument, a file."""
        return "line" if self.is_lined else "file" if self.files else "argument"

    @property
    def is_lined(self) -> bool:
        """Whether a line is a message."""
        return bool(self.lines or self.jsonl)

    def check(self) -> None:
        """Whether there is one source.

        Raises:
            CommandError: there are several.
        """
        given = {"arguments": self.texts, "--file": self.files, "--lines": self.lines, "--jsonl": self.jsonl}
        named = [name for name, value in given.items() if value]
        if len(named) > 1:
            raise usage(f"messages come from one source, not from {' and '.join(named)}", "give one of them")

    async def messages(self, defaults: Outgoing, rounds: int) -> AsyncIterator[Placed]:
        """The messages, all of them `rounds` times; headers and properties of `defaults` hold where one has none.

        Raises:
            CommandError: what was read is no message; it names the line.
        """
        kept: list[Placed] = []
        async for number, message in self._once(defaults):
            one = Placed(Place(1, number), message)
            if rounds > 1:
                kept.append(one)
            yield one
        for repeated in range(2, rounds + 1):
            for place, message in kept:
                yield Placed(Place(repeated, place.number), message)

    async def _once(self, defaults: Outgoing) -> AsyncIterator[tuple[int, Outgoing]]:
        if not self.is_lined:
            for number, body in enumerate(self._bodies(), 1):
                yield number, Outgoing(body, defaults.properties, defaults.headers)
            return
        async for number, line in _lines(self.lines or self.jsonl):
            if self.lines:
                body = body_in(line, self.body_type, f"line {number}")
                yield number, Outgoing(body, defaults.properties, defaults.headers)
                continue
            one = outgoing(line, number)
            properties, headers = {**defaults.properties, **one.properties}, {**defaults.headers, **one.headers}
            yield number, Outgoing(one.body, properties, headers, one.expiration_ms)

    def _bodies(self) -> Iterator[Any]:
        if self.texts:
            yield from (body_in(text, self.body_type, f"argument {place}") for place, text in enumerate(self.texts, 1))
        elif self.files:
            yield from (self._whole(_read(path), str(path)) for path in self.files)
        elif self.body_type == "none":
            yield None
        elif sys.stdin.isatty():
            raise usage("nothing to send", "give a text, --file, --lines or --jsonl, or pipe something in")
        elif data := sys.stdin.buffer.read():
            yield self._whole(data, "stdin")
        else:
            raise usage("nothing to send: stdin is empty", "give a text; '' sends an empty one")

    def _whole(self, data: bytes, where: str) -> Any:
        if self.body_type in ("bytes", "object"):
            return data if self.body_type == "bytes" else sterna.Object(data)
        try:
            return body_in(data.decode(), self.body_type, where)
        except UnicodeDecodeError as error:
            raise usage(f"{where} is no UTF-8 text", "send it with --body-type bytes") from error


async def _lines(name: str) -> AsyncIterator[tuple[int, str]]:
    """The lines of a file or of stdin as they come, numbered from 1, without their ends; empty ones are left out."""
    chunks = _Chunks(name)
    begun = bytearray()
    number = 0
    while chunk := await chunks.next():
        begun += chunk
        if b"\n" not in chunk:
            if len(begun) > _LINE_BYTES_MAX:
                raise usage(f"line {number + 1} is longer than {_LINE_BYTES_MAX >> 20} MiB", "send it with --file")
            continue
        *ended, rest = bytes(begun).split(b"\n")
        begun = bytearray(rest)
        for line in ended:
            number += 1
            if text := _text(line, number, name):
                yield number, text
    if text := _text(bytes(begun), number + 1, name):
        yield number + 1, text


def _text(line: bytes, number: int, name: str) -> str:
    try:
        return line.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise usage(f"cannot read {name}: line {number} is no UTF-8 text", "send it with --file") from error


class _Chunks:
    """What a thread reads. It is a daemon and reads the descriptor itself: a read that waits holds nothing up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._read: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._ahead = threading.Semaphore(_CHUNKS_AHEAD)
        threading.Thread(target=self._work, name="lines", daemon=True).start()

    async def next(self) -> bytes:
        """The next bytes; none at the end.

        Raises:
            CommandError: it cannot be read.
        """
        found = await self._read.get()
        self._ahead.release()
        if isinstance(found, OSError):
            raise _unreadable(self._name) from found
        return found

    def _work(self) -> None:
        try:
            descriptor = sys.stdin.fileno() if self._name == "-" else os.open(self._name, os.O_RDONLY)
            while self._hand(os.read(descriptor, _CHUNK_BYTES)):
                pass
        except OSError as error:
            self._hand(error)

    def _hand(self, found: bytes | OSError) -> bool:
        """Hands over what was read; whether there is more to read."""
        self._ahead.acquire()
        try:
            self._loop.call_soon_threadsafe(self._read.put_nowait, found)
        except RuntimeError:
            return False  # the command has ended meanwhile
        return bool(found) and isinstance(found, bytes)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(str(path)) from error


def _unreadable(name: str) -> CommandError:
    return usage(f"cannot read {name}", "name a readable file, or - for stdin")
