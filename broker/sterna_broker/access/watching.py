"""Notices that files changed, by looking at them.

That works on every file system, and for mounted Secrets, which change by exchanging a symbolic link. A file is what
`stat` says of where its links lead: moments, size and number. The moment of its status is among them, since whoever may
read a file counts as well, and who copies a file may give it the moment of an older one. What is loaded from it may
fail while somebody is still writing; it is then tried again at each look until it works.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

INTERVAL_S = 1.0
#: Files that were not twice the same for so many looks are not going to be, as far as anybody can tell.
RESTLESS_LOOKS = 30

Stamp = tuple[int, int, int, int, int] | None


class Watch:
    """Calls `load` when one of the files has changed; it answers whether it could use them."""

    def __init__(
        self,
        paths: Iterable[Path] | Callable[[], Iterable[Path]],
        load: Callable[[], Awaitable[bool]],
        interval_s: float = INTERVAL_S,
        *,
        settles: bool = False,
    ) -> None:
        """A function for `paths` is asked at each look.

        `settles`: what has changed is loaded once it was the same in two looks. Half of it may be something else, and
        not only something wrong.
        """
        fixed = None if callable(paths) else tuple(paths)
        self._paths: Callable[[], Iterable[Path]] = paths if callable(paths) else lambda: fixed or ()
        self._load = load
        self._interval_s = interval_s
        self._settles = settles
        self._seen = self._last = self._stamps()
        self._works = True
        self._waited = 0
        self._task: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()

    def start(self) -> None:
        """Begins to look. What the files were like was noted when the watch was made: make it before the first load."""
        self._task = asyncio.create_task(self._run(), name="watch-files")

    async def stop(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self, *, anyway: bool = False) -> None:
        """Looks now; `anyway`: loads whether or not anything seems to have changed."""
        async with self._loading:
            stamps = await asyncio.to_thread(self._stamps)
            before, self._last = self._last, stamps
            has_changed = stamps != self._seen and (stamps == before or not self._settles)
            self._waited = 0 if anyway or has_changed or stamps == self._seen else self._waited + 1
            if anyway or has_changed or not self._works:
                self._seen = stamps
                self._works = await self._load()

    @property
    def is_restless(self) -> bool:
        """Whether the files change so often that nothing of them has been loaded for long."""
        return self._waited >= RESTLESS_LOOKS

    def _stamps(self) -> list[tuple[Path, Stamp]]:
        return stamps(self._paths())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look()


def stamps(paths: Iterable[Path]) -> list[tuple[Path, Stamp]]:
    """What each file is now; None: it cannot be looked at."""
    return [(path, _stamp(path)) for path in paths]


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
