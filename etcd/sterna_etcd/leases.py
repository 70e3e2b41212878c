"""A lease, kept alive.

Whether it still lives is judged by our own monotonic clock, counted from when the last renewal that was answered had
been sent: etcd cannot have ended it before that. Once that time has passed without an answer it counts as lost, even if
etcd should still have it.
"""

import asyncio
from typing import Protocol

from sterna_etcd.errors import EtcdError, LeaseNotFoundError, NotDoneError
from sterna_etcd.surroundings import monotonic_s

# After a renewal that failed.
_RETRY_S = 0.3


class Keeper(Protocol):
    """The part of the client that a lease needs."""

    async def keep_alive(self, lease: int, attempt_s: float) -> int:
        """Renews once; the seconds it lives, 0 when it has ended."""

    async def revoke(self, lease: int) -> None:
        """Ends it."""


class Lease:
    """`id` for writes under it; `lost` is set when it has ended without having been revoked."""

    def __init__(self, keeper: Keeper, number: int, ttl_s: int, sent_s: float) -> None:
        self.id = number
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()
        self._keeper = keeper
        self._valid_until_s = sent_s + ttl_s
        self._task = asyncio.create_task(self._keep(), name=f"etcd-lease-{number:x}")
        self._task.add_done_callback(self._ended)

    @property
    def is_alive(self) -> bool:
        """Whether etcd certainly still has it."""
        return not self.lost.is_set() and monotonic_s() < self._valid_until_s

    async def revoke(self) -> None:
        """Ends it, with the keys on it; when etcd cannot be reached, it ends by itself after its time."""
        await self.stop()
        try:
            await self._keeper.revoke(self.id)
        except NotDoneError:
            return

    async def stop(self) -> None:
        """Renews it no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """However the renewing has ended, but by `stop`: nobody may go on as if the lease were renewed."""
        if not task.cancelled():
            self.lost.set()

    async def _keep(self) -> None:
        """Renews when a third of its life is over since a renewal was last sent; no endpoint gets all that is left."""
        retry_s = 0.0
        while (left_s := self._valid_until_s - monotonic_s()) > 0:
            await asyncio.sleep(min(retry_s or max(left_s - self.ttl_s * 2 / 3, 0.0), left_s))
            sent_s = monotonic_s()
            left_s = max(self._valid_until_s - sent_s, 0.01)
            try:
                async with asyncio.timeout(left_s):
                    lives_s = await self._keeper.keep_alive(self.id, left_s / 3)
            except LeaseNotFoundError:
                break
            except (EtcdError, TimeoutError):
                retry_s = _RETRY_S
                continue
            if lives_s <= 0:
                break
            self._valid_until_s = sent_s + lives_s
            retry_s = 0.0
