"""Whether this broker's name is its own. Two brokers of one name would each serve the destinations of both.

Who lives under a name stands in etcd, with an incarnation that is made anew at each start. A broker that finds another
incarnation there than those that it had before (kept in its data folder, which only one process can have open) waits
until that one's lease must have run out, and gives up if it is still there then. So a broker that was killed starts
again at once, one that lost its disk a few seconds later, and a second one of the same name not at all. Several are
kept, since a start without etcd is not registered: what stands there when etcd is back is of an earlier one.

A copy of a data folder has the incarnation, too: a broker that starts from it takes the name over, as the same broker
started again would. So what is registered is compared each round, and who finds another incarnation than its own is
beaten, and stops: of several brokers of one name the last one that has registered goes on.
"""

import asyncio
from pathlib import Path

import structlog
from sterna_etcd.records import BrokerRecord

from sterna_broker.cluster.kept import replace
from sterna_broker.cluster.registration import LEASE_S
from sterna_broker.cluster.view import View
from sterna_broker.surroundings import random_hex

_log = structlog.get_logger(part="cluster")

FILE = "incarnation"
# An etcd that has just changed its leader lets leases live longer.
_WAIT_S = LEASE_S * 2.5
_LOOK_S = 0.25
# So many starts without etcd, one after the other, are known again.
_KEPT_MAX = 100


class NameTakenError(ValueError):
    """Another broker has this name; the text says which."""


class Naming:
    """See the module. `here` is this start's incarnation, `before` those of the ones before, the oldest first."""

    def __init__(self, cluster: str, name: str, data: Path) -> None:
        self.here = random_hex(8)
        self.before: tuple[str, ...] = ()
        self._cluster = cluster
        self._name = name
        self._path = data / FILE

    async def wait_free(self, view: View, wait_s: float = _WAIT_S) -> None:
        """Returns when nobody else has the name, as far as is known.

        Raises:
            NameTakenError: somebody has it, and lives.
            OSError: the data folder cannot be read.
        """
        self.before = await asyncio.to_thread(self._read)
        deadline = asyncio.get_running_loop().time() + wait_s
        is_said = False
        while (other := self.rival(view)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise NameTakenError(self.complaint(other))
            if not is_said:
                _log.warning("waiting_for_name", name=self._name, registered=other.addresses, wait_s=wait_s)
                is_said = True
            await asyncio.sleep(_LOOK_S)

    async def keep(self) -> None:
        """Remembers this incarnation, once the data folder is ours; before anybody is told of it.

        Durably: what forgets it in a loss of power would take its own registration for another broker's.
        """
        await asyncio.to_thread(replace, self._path, "\n".join((*self.before[1 - _KEPT_MAX :], self.here)))

    def is_ours(self, record: BrokerRecord) -> bool:
        """Whether a registration is this broker's, of this start or of one before."""
        return record.incarnation in (self.here, *self.before)

    def complaint(self, other: BrokerRecord) -> str:
        """What is wrong, and what to do."""
        where = ", ".join(other.addresses) or "an unknown address"
        return (
            f"the name '{self._name}' belongs to another broker of the cluster '{self._cluster}', "
            f"which lives at {where}: give each broker a --name and a data folder of its own, or stop that one first"
        )

    def rival(self, view: View) -> BrokerRecord | None:
        """The other broker that is registered under this name; None: there is none."""
        stored = view.brokers.get(self._name)
        return None if stored is None or self.is_ours(stored.record) else stored.record

    def _read(self) -> tuple[str, ...]:
        try:
            return tuple(self._path.read_text("utf-8").split())
        except FileNotFoundError:
            return ()
