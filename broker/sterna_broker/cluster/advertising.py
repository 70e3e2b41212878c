"""Under which URLs clients reach this broker: as given, or from a file that is read again when it changes.

Such a file is how a pod is told: outside of it somebody knows which ports and addresses lead there, and may learn more
of them while the broker runs. `$(NAME)` in it is replaced from the environment, as in a pod's arguments: the address
of the pod's node is known there and nowhere before.
"""

import asyncio
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from sterna_broker.access.watching import Watch

_log = structlog.get_logger(part="advertising")

FILE_BYTES_MAX = 65_536
_SCHEMES = ("sterna://", "sternas://")
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class AdvertiseError(ValueError):
    """What is given makes no sense; the text says why."""


def parse(text: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The URLs of a text with commas between them.

    Raises:
        AdvertiseError: one of them is no address for clients, or a variable is not set.
    """
    known = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise AdvertiseError(f"--advertise: {match[0]} stands for nothing: {match[1]} is not set")
        return _bracketed(known[match[1]])

    urls = tuple(url.strip() for url in _VARIABLE.sub(value, text).split(",") if url.strip())
    for url in urls:
        if not url.startswith(_SCHEMES):
            raise AdvertiseError(f"--advertise: '{url}' is no address for clients; write sterna://host:port")
    return urls


def _bracketed(value: str) -> str:
    """An IPv6 address as it stands in a URL; anything else as it is."""
    try:
        return f"[{value}]" if ipaddress.ip_address(value).version == 6 else value
    except ValueError:
        return value


def read(file: Path) -> tuple[str, ...]:
    """The URLs in a file. Touches the disk.

    Raises:
        AdvertiseError: as parse; or the file cannot be read.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise AdvertiseError(f"--advertise: {file} is larger than {FILE_BYTES_MAX} bytes")
        return parse(content.decode("utf-8"))
    except OSError as error:
        raise AdvertiseError(f"--advertise: {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise AdvertiseError(f"--advertise: {file} is no text") from error


class Advertising:
    """The URLs that hold now. `start`, then `stop`; `changed` is told when they are others."""

    def __init__(self, urls: tuple[str, ...], file: Path | None, changed: Callable[[], None]) -> None:
        self.urls = urls
        self._file = file
        self._changed = changed
        self._watch = Watch((file,), self._load) if file is not None else None

    async def start(self) -> None:
        """Reads the file for the first time; what is wrong with it then is logged, and the next look tries again."""
        if self._watch is not None:
            await self._watch.look(anyway=True)
            self._watch.start()

    async def stop(self) -> None:
        """Looks no more."""
        if self._watch is not None:
            await self._watch.stop()

    async def _load(self) -> bool:
        assert self._file is not None  # otherwise nothing is watched
        try:
            urls = await asyncio.to_thread(read, self._file)
        except AdvertiseError as error:
            _log.warning("addresses_not_read", error=str(error))
            return False
        if urls != self.urls:
            self.urls = urls
            _log.info("addresses", urls=urls)
            self._changed()
        return True
