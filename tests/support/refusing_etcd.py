"""Etcds that have no room for changes to one key, until they have; that say what they are asked; that do not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sterna_etcd import NoSpaceError, UnknownOutcomeError


class RefusingEtcd:
    """Stands before an etcd.

    Args:
        etcd: the one that is asked.
        path: of the key that it has no room for.
        refuses: that it has none; else what is asked of it gets lost.
    """

    def __init__(self, etcd: Any, path: str, *, refuses: bool = True) -> None:
        self._etcd = etcd
        self._path = path
        self._refuses = refuses
        self.has_room = False
        self.asked = 0

    async def transact(self, conditions: Any, operations: Any, *others: Any) -> Any:
        """Refuses, or loses it."""
        if any(one.key == self._path for one in operations):
            self.asked += 1
            if not self.has_room:
                raise NoSpaceError("no space") if self._refuses else UnknownOutcomeError("no answer")
        return await self._etcd.transact(conditions, operations, *others)

    async def get(self, *arguments: Any) -> Any:
        """Answers."""
        return await self._etcd.get(*arguments)


class AttentiveEtcd:
    """Stands before an etcd; calls `before` when a key is about to be changed for the first time."""

    def __init__(self, etcd: Any, path: str, before: Callable[[], Awaitable[None]]) -> None:
        self._etcd = etcd
        self._path = path
        self._before: Callable[[], Awaitable[None]] | None = before

    async def transact(self, conditions: Any, operations: Any, *others: Any) -> Any:
        """Does it, behind what is to come before."""
        if self._before is not None and any(one.key == self._path for one in operations):
            before, self._before = self._before, None
            await before()
        return await self._etcd.transact(conditions, operations, *others)

    async def get(self, *arguments: Any) -> Any:
        """Answers."""
        return await self._etcd.get(*arguments)


class SilentEtcd:
    """Stands before an etcd; changes a key, and never says so."""

    def __init__(self, etcd: Any, path: str) -> None:
        self._etcd = etcd
        self._path = path

    async def transact(self, conditions: Any, operations: Any, *others: Any) -> Any:
        """Does it."""
        done = await self._etcd.transact(conditions, operations, *others)
        if any(one.key == self._path for one in operations):
            await asyncio.Event().wait()
        return done

    async def get(self, *arguments: Any) -> Any:
        """Answers."""
        return await self._etcd.get(*arguments)
