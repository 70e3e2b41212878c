"""How many messages are here: in all, as the broker says, and in each destination and durable, as its object says.

All are counted now and then. The sum is right each time; a cluster that is to go only when it is empty trusts it. Of
the others only so many are told anew at a time, since each is a write in etcd: the next time it goes on behind the last
of them, so that all have their turn, whatever they are called and however fast others change.
"""

import itertools

from sterna_broker.cluster.upkeep import EngineView, messages_of

_EVERY_S = 5.0
_AT_ONCE = 200

Counted = tuple[str, str]
"""What is counted: "queue", "topic" or "durable", and its name (durables: client id, slash, name)."""


class MessageCounts:
    """See the module."""

    def __init__(self) -> None:
        self.total = 0
        """All messages that are here, each once."""

        self._told: dict[Counted, int] = {}
        self._last: Counted = ("", "")
        self._next_s = 0.0

    def of(self, key: Counted) -> int:
        """How many messages it holds, as is to be told of it now."""
        return self._told.get(key, 0)

    async def count(self, engine: EngineView, now_s: float) -> bool:
        """Counts when it is time to; whether something else is to be told of one of them."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _EVERY_S
        found: dict[Counted, int] = {}
        for kind in ("queue", "topic", "durable"):
            for name, row in (await engine.rows_by_and_by(kind)).items():
                found[kind, name] = messages_of(row)
        self.total = engine.messages()
        # What has gone has taken its messages along.
        gone = self._told.keys() - found
        for key in gone:
            del self._told[key]
        turn = self._turn([key for key, count in found.items() if self.of(key) != count])
        self._told |= {key: found[key] for key in turn}
        return bool(gone or turn)

    def _turn(self, different: list[Counted]) -> list[Counted]:
        """Those of them whose turn it is: the next ones in their order, and behind its end again the first ones."""
        ordered = sorted(different)
        after = [key for key in ordered if key > self._last]
        turn = list(itertools.islice(itertools.chain(after, ordered[: len(ordered) - len(after)]), _AT_ONCE))
        self._last = turn[-1] if turn else self._last
        return turn
