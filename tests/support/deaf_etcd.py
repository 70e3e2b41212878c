"""An etcd whose answers to changes get lost, and which cannot be read, until it hears again."""

from typing import Any

from sterna_etcd import EtcdError, UnavailableError, UnknownOutcomeError


class DeafEtcd:
    """Stands before an etcd.

    Args:
        etcd: the one that is asked.
        does: whether what is lost is the answer; else it is the request.
        failure: what is said of a change instead.
    """

    def __init__(self, etcd: Any, *, does: bool, failure: EtcdError | None = None) -> None:
        self._etcd = etcd
        self._failure = failure or UnknownOutcomeError("no answer")
        self._does = does
        self.hears = False
        self.asked = 0

    async def transact(self, *arguments: Any) -> Any:
        """Does it, or does not, and says neither."""
        self.asked += 1
        if self.hears:
            return await self._etcd.transact(*arguments)
        if self._does:
            await self._etcd.transact(*arguments)
        raise self._failure

    async def get(self, *arguments: Any) -> Any:
        """Refuses."""
        if self.hears:
            return await self._etcd.get(*arguments)
        raise UnavailableError("no etcd")
