"""What this broker serves, compared with the homes: one name is served by one broker.

The engine serves whatever it has. So each round, before anything else, everything whose home has changed since the
last comparison is looked at, and now and then all there is: what lives on another broker by now is served to nobody
here any more, and who uses it is told where it lives. That is so for whatever reason a home went without its messages:
a broker was given up by force, was cut off from etcd or away meanwhile, or an opening was overtaken. What is left of
such a name is *stray*: it stays here, is counted and reported, and keeps this broker from being removed; it is had
again when its home is given back to this broker.

What is forced to leave is served to nobody from the moment at which etcd is asked to give it away, until it is known to
be this broker's after all.

What is back is served once the engine has been told what hangs on it: what is sent to it before would miss that.

A home's epoch is etcd's revision of its claim: what was looked at under another one is looked at again.
"""

from typing import Any, Protocol

import structlog
from sterna_etcd import HomeKey

from sterna_broker.cluster.desk import too_early
from sterna_broker.cluster.holding import is_elsewhere, key_of
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.upkeep import messages_of
from sterna_broker.configuration.patterns import matches
from sterna_broker.refusals import RefusedError

_log = structlog.get_logger(part="homes")

_NAMED_MAX = 5
_KINDS = ("queue", "topic")
# So many are asked for one by one; for more all are listed.
_FEW = 64


class Engine(Protocol):
    """The part of the engine's view that is needed."""

    def rows(self, kind: str) -> dict[str, dict[str, Any]]:
        """All destinations of a kind."""

    def subscribed(self) -> set[str]:
        """The topics and patterns that somebody subscribes to."""

    def row(self, key: HomeKey) -> dict[str, Any] | None:
        """One destination; None: it does not exist."""

    def serve_elsewhere(self, key: HomeKey, told: RefusedError | None) -> None:
        """Serves a destination to nobody, telling who uses it; or with None serves it again."""

    def close_subscribers(self, topic: str, told: RefusedError) -> None:
        """Tells those who subscribe to this topic or pattern, and have got everything."""


class Desk(Protocol):
    """The part of the desk that is needed."""

    def moved(self, what: str, subject: str, home: str) -> RefusedError:
        """Says where something lives."""


class Served:
    """See the module."""

    def __init__(self, homes: Homes, desk: Desk, engine: Engine) -> None:
        self.stray: dict[HomeKey, int] = {}
        """What is here of names that live on other brokers, with how many messages, where there are any."""

        self._homes = homes
        self._desk = desk
        self._engine = engine
        self._compared: dict[HomeKey, int] = {}
        self._away: dict[HomeKey, tuple[int, str, tuple[str, ...]]] = {}
        self._back: dict[HomeKey, None] = {}
        # What is stray and stands in no row of a topic: durable subscriptions hold it.
        self._subscribed: set[HomeKey] = set()
        self._has_gone = False

    @property
    def warnings(self) -> list[str]:
        """One sentence, naming some."""
        if not self.stray:
            return []
        named = [f"{key.kind} '{key.name}' ({count})" for key, count in list(self.stray.items())[:_NAMED_MAX]]
        more = len(self.stray) - len(named)
        names = ", ".join(named) + (f" and {more} more" if more else "")
        return [f"messages here of destinations that live on other brokers, which nobody is given: {names}"]

    @property
    def back(self) -> list[HomeKey]:
        """What is here of names that live here again: it is served once what hangs on them has been made."""
        return list(self._back)

    def serve_again(self, keys: list[HomeKey]) -> None:
        """Serves these again, which were `back` before the engine was told of all that lives here."""
        for key in keys:
            if self._home_of(key) == self._homes.name and self._back.pop(key, self) is None:
                del self._away[key]
                self._engine.serve_elsewhere(key, None)

    def compare(self) -> None:
        """Looks at what has changed since it was last asked."""
        homes = self._homes.view.homes
        changed = [key for key in self._compared if key not in homes]
        changed += [key for key, stored in homes.items() if self._compared.get(key) != stored.revision]
        # Who subscribes gets what there is first; and where its home is may have another address by now.
        wanted = dict.fromkeys([*changed, *self._away])
        here = self._here() if len(wanted) > _FEW else None
        subscribed = self._engine.subscribed() if any(key.kind == "pattern" for key in wanted) else set[str]()
        for key in wanted:
            if key.kind == "pattern":
                self._look_at_pattern(key, is_used=key.name in subscribed)
            else:
                self._look(key, self._engine.row(key) if here is None else here.get(key))
            if key in homes:
                self._compared[key] = homes[key].revision
            else:
                self._compared.pop(key, None)
        if self._has_gone or self._subscribed or any(key.kind == "pattern" for key in changed):
            self._look_at_durables()

    def compare_all(self, rows: dict[HomeKey, dict[str, Any]]) -> None:
        """Looks at all of these, which are here."""
        for key in rows:
            # They were listed by and by.
            self._look(key, self._engine.row(key))
        self._look_at_durables()

    def look(self, key: HomeKey) -> None:
        """Looks at one name at once: it has begun to leave, or that has ended."""
        if key.kind in _KINDS:
            self._look(key, self._engine.row(key))

    def _here(self) -> dict[HomeKey, dict[str, Any]]:
        return {HomeKey(kind, name): row for kind in _KINDS for name, row in self._engine.rows(kind).items()}

    def _look(self, key: HomeKey, row: dict[str, Any] | None) -> None:
        home = self._home_of(key)
        self._back.pop(key, None)
        if home in (None, self._homes.name):
            # What lives here, or nowhere, is served.
            self.stray.pop(key, None)
            if key in self._away and home is not None and row is not None:
                self._back[key] = None
                if self._away[key][1] != self._homes.name:
                    # Where it was says that it lives here: who is led back and forth gives up before long.
                    self._engine.serve_elsewhere(key, too_early(f"The {key.kind} '{key.name}'", key.name))
                self._away[key] = (int(row["id"]), self._homes.name, ())
            elif self._away.pop(key, None) is not None:
                self._engine.serve_elsewhere(key, None)
            return
        if row is None:
            self._away.pop(key, None)
            # With its description, perhaps; what durable subscriptions have of it is here still.
            self._has_gone |= self.stray.pop(key, None) is not None
            return
        told = self._desk.moved(f"the {key.kind} '{key.name}'", key.name, home)
        if count := messages_of(row):
            self.stray[key] = count
        else:
            self.stray.pop(key, None)
        where = (int(row["id"]), home, tuple(told.addresses))
        if self._away.get(key) != where:
            self._engine.serve_elsewhere(key, told)
            self._away[key] = where
            _log.warning("served_elsewhere", kind=key.kind, name=key.name, home=home, messages=count)
        elif key.kind == "topic":
            self._engine.close_subscribers(key.name, told)

    def _look_at_durables(self) -> None:
        """What durable subscriptions hold of topics and patterns that live elsewhere, if no row of a topic tells it."""
        self._has_gone = False
        for key in self._subscribed:
            self.stray.pop(key, None)
        found: dict[HomeKey, int] = {}
        for row in self._engine.rows("durable").values():
            key, count = key_of(row), messages_of(row)
            if count and is_elsewhere(self._homes, key) and not self._is_told(key):
                found[key] = found.get(key, 0) + count
        self._subscribed = set(found)
        self.stray |= found

    def _is_told(self, key: HomeKey) -> bool:
        """Whether what is subscribed to this is counted with a topic that is stray."""
        if key.kind == "topic":
            return key in self.stray
        return any(one.kind == "topic" and matches(key.name, one.name) for one in self.stray)

    def _home_of(self, key: HomeKey) -> str | None:
        # What is forced to leave is here still, and may be open where it goes before etcd has told us so.
        return self._homes.goes_to(key) or self._homes.view.home(key.kind, key.name)

    def _look_at_pattern(self, key: HomeKey, *, is_used: bool) -> None:
        home = self._homes.view.home(key.kind, key.name)
        if home in (None, self._homes.name) or not is_used:
            self._away.pop(key, None)
            return
        told = self._desk.moved(f"the {key.kind} '{key.name}'", key.name, home)
        self._away[key] = (0, home, tuple(told.addresses))
        self._engine.close_subscribers(key.name, told)
