"""Users as the broker knows them: names with argon2id hashes, each hash valid until its time.

A user may have several credentials at once, so that a password can be changed while clients still use the old one:
the new hash is added, the old one gets a `not_after_ms`. Records come from a file (`users_file`) or, in a cluster, from
whoever watches the keys `users/<name>`; each source replaces what it said before, as a whole. A name that both know is
the file's: it is how somebody gets in when the cluster's records are wrong.

Checking a password is not done here (`verification`); this is what holds, at once, when records change.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
from sterna_resources.passwords import Cost, HashError, cost_of, user_fault

from sterna_broker import surroundings

_log = structlog.get_logger(part="access")

CREDENTIALS_MAX = 8
"""Hashes of one user. Each wrong password is checked against all of them."""

Source = Literal["file", "cluster"]
_SOURCES: tuple[Source, ...] = ("file", "cluster")
_CREDENTIAL_FIELDS = {"argon2", "not_after_ms"}


@dataclass(frozen=True)
class Credential:
    """One hash of one user."""

    argon2: str = field(repr=False)
    not_after_ms: int | None = None
    """Wall clock; None: until it is taken out."""

    @functools.cached_property
    def id(self) -> str:
        """Names it in memory and logs: short, and tells nothing of the password."""
        return hashlib.sha256(self.argon2.encode()).hexdigest()[:16]

    @functools.cached_property
    def cost(self) -> Cost:
        """The work of checking it."""
        return cost_of(self.argon2)

    def is_live(self, now_ms: int) -> bool:
        """Whether it opens anything at that time."""
        return self.not_after_ms is None or now_ms < self.not_after_ms


@dataclass(frozen=True)
class User:
    """A name with its credentials; none: nobody gets in with a password, a client certificate may do."""

    name: str
    credentials: tuple[Credential, ...] = ()


class RecordError(ValueError):
    """A record that cannot be used; the text says why."""


def read_record(name: str, record: Any) -> User:
    """A user from a record `{"credentials": [{"argon2": …, "not_after_ms": …}]}`; other fields are its writer's.

    Raises:
        RecordError: it is not of this shape.
    """
    if fault := user_fault(name):
        raise RecordError(f"the name {fault}")
    listed = record.get("credentials") if isinstance(record, Mapping) else None
    if not isinstance(listed, list):
        raise RecordError("has no list 'credentials'")
    if len(listed) > CREDENTIALS_MAX:
        raise RecordError(f"has {len(listed)} credentials, at most {CREDENTIALS_MAX} are allowed")
    return User(name, tuple(read_credential(one, f"credentials[{index}]") for index, one in enumerate(listed)))


def read_credential(value: Any, where: str) -> Credential:
    """One credential of a record; `where` names it in errors.

    Raises:
        RecordError: it is not of this shape.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("argon2"), str):
        raise RecordError(f"{where}: has no text 'argon2'")
    if set(value) - _CREDENTIAL_FIELDS:
        # It is not repeated: a hash without quotes, in braces, falls into pieces at its commas.
        known = " and ".join(sorted(_CREDENTIAL_FIELDS))
        raise RecordError(f"{where}: has a field that nobody knows besides {known} (a hash in braces needs quotes)")
    not_after_ms = value.get("not_after_ms")
    if not_after_ms is not None and (isinstance(not_after_ms, bool) or not isinstance(not_after_ms, int)):
        raise RecordError(f"{where}: 'not_after_ms' is no whole number of milliseconds since 1970")
    try:
        cost_of(value["argon2"])
    except HashError as error:
        raise RecordError(f"{where}: {error}") from error
    return Credential(value["argon2"], not_after_ms)


class UserStore:
    """All users that there are. Lives on the event loop's thread; `wall_ms` is the clock that credentials end by."""

    def __init__(self, wall_ms: Callable[[], int] = surroundings.wall_ms) -> None:
        self._wall_ms = wall_ms
        self._by_source: dict[Source, dict[str, User]] = {source: {} for source in _SOURCES}
        self._users: dict[str, User] = {}
        self._ends_ms: tuple[int, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of what is known; expiry is no change (`ended_since`)."""
        self._listeners.append(listener)

    def replace(self, records: Mapping[str, Any], source: Source = "cluster") -> dict[str, str]:
        """Makes these records all that a source knows; what is not among them is gone at once.

        A record that cannot be used leaves its user without credentials, rather than with old ones that may have been
        taken back, and nobody else is concerned.

        Returns:
            Why records could not be used, by name.
        """
        problems: dict[str, str] = {}
        users: dict[str, User] = {}
        for name, record in records.items():
            try:
                users[name] = read_record(name, record)
            except RecordError as error:
                problems[name] = str(error)
                users[name] = User(name)
        for name, why in problems.items():
            _log.error("user_record_refused", user=name, source=source, error=why)
        self.put(users, source)
        return problems

    def put(self, users: Mapping[str, User], source: Source) -> None:
        """As `replace`, with users that have been read already."""
        if self._by_source[source] == users:
            return
        self._by_source[source] = dict(users)
        twice = sorted(self._by_source["file"].keys() & self._by_source["cluster"].keys())
        if twice:
            _log.warning("users_of_the_file_hide_those_of_the_cluster", users=twice[:20], count=len(twice))
        self._users = {**self._by_source["cluster"], **self._by_source["file"]}
        every = (one.not_after_ms for user in self._users.values() for one in user.credentials)
        self._ends_ms = tuple(sorted(end for end in every if end is not None))
        _log.info("users_changed", source=source, users=len(self._users))
        for listener in self._listeners:
            listener()

    def __len__(self) -> int:
        return len(self._users)

    def knows(self, name: str) -> bool:
        """Whether there is such a user."""
        return name in self._users

    def live(self, name: str) -> tuple[Credential, ...]:
        """The credentials with which this user gets in now; none for a user that nobody knows."""
        user = self._users.get(name)
        now_ms = self._wall_ms()
        return tuple(one for one in user.credentials if one.is_live(now_ms)) if user else ()

    def accepts(self, name: str, credential: str) -> bool:
        """Whether the credential of this id still opens anything for this user."""
        return any(one.id == credential for one in self.live(name))

    def profiles(self) -> list[tuple[Cost, ...]]:
        """The work that checking a wrong password takes, for each user who has live credentials; in a fixed order."""
        now_ms = self._wall_ms()
        costs = (
            tuple(one.cost for one in user.credentials if one.is_live(now_ms))
            for _, user in sorted(self._users.items())
        )
        return [cost for cost in costs if cost]

    def ended_since(self, since_ms: int) -> bool:
        """Whether any credential has ended by itself after that time."""
        now_ms = self._wall_ms()
        return any(since_ms < end_ms <= now_ms for end_ms in self._ends_ms)
