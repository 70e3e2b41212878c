"""Answers to clients about destinations in a cluster: here, or where.

What the configuration allows is asked first; then where the name lives. What lives elsewhere is answered with MOVED
and the addresses of its broker, those known last when it is away. Patterns of topics are claimed like names, so that
nothing that they match can come to live on another broker unnoticed. What bridges or durable subscriptions hang on
is answered, when it has just come to live here, once the engine has these: what is sent to it before would miss them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sterna_etcd import HomeKey

from sterna_broker.cluster.homes import GOING, Homes
from sterna_broker.cluster.locality import home_of
from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_broker.refusals import RefusedError

Answer = dict[str, Any]
Late = Callable[[], Answer | Awaitable[Any]]
"""An answer that is made at the moment at which the engine takes it: what it rests on may have changed since it was
waited for. It may have to be waited for anew."""

# How long whoever opens what is about to leave waits for that.
_HELD_S = 10.0

_NAMED = {"Queue": "queue", "Topic": "topic"}


class ClusterDesk:
    """Asked by the broker's ticket desk, and by administration for what it is to do on a destination."""

    def __init__(
        self,
        homes: Homes,
        objects: Callable[[], ObjectSet],
        is_told: Callable[[HomeKey], Awaitable[bool]],
        held_back: Callable[[HomeKey], asyncio.Event | None] = lambda _: None,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_told` waits until the engine has what hangs on a destination that lives here; whether it has.

        `held_back` says of a destination that lives here and is not to be made for now when it may be. `is_current`:
        whether etcd is followed, so that what is not known here is nowhere.
        """
        self._held_back = held_back
        self._homes = homes
        self._objects = objects
        self._is_told = is_told
        self._is_current = is_current

    def doubt(self, kind: Kind, name: str) -> RefusedError | None:
        """Why nobody can say here that a destination is not allowed; None: what is not known here is nowhere.

        While etcd is away the configuration may be older than what has been said since, also by this broker before it
        was started again. Whoever was told that there is no such destination would not ask again.
        """
        if self._is_current():
            return None
        message = f"The {kind} '{name}' is not known here, and etcd, which may know it, cannot be used."
        return RefusedError("UNAVAILABLE", name[:256], message, "Try again when etcd is back.", retryable=True)

    def lives_elsewhere(self, kind: Kind, name: str) -> bool:
        """Whether a destination is known to have its home on another broker."""
        return self._homes.view.home(kind, name) not in (None, self._homes.name)

    async def destination(self, kind: Kind, name: str) -> Answer | Late:
        """A destination that the configuration allows: created here, or where it lives."""
        key = HomeKey(kind, name)
        try:
            home = await self._homes.of(key)
        except RefusedError as refused:
            return {"error": error_of(refused)}
        if home != self._homes.name:
            return {"error": error_of(self.moved(f"the {kind} '{name}'", name, home))}
        if (until := self._held_back(key)) is not None:
            try:
                async with asyncio.timeout(_HELD_S):
                    await until.wait()
            except TimeoutError:
                return {"error": error_of(_going(f"The {kind} '{name}'", name))}
            return await self.destination(kind, name)
        epoch = self._homes.epoch(key)
        if not await self._is_told(key):
            return {"error": error_of(too_early(f"The {kind} '{name}'", name))}

        def late() -> Answer | Awaitable[Answer | Late]:
            if not epoch or self._homes.epoch(key) != epoch:
                return self.destination(kind, name)
            if self._held_back(key) is not None:
                return self.destination(kind, name)
            if self._homes.view.is_going:
                # What is there already is used as it is; what is made now would be open, and has not been counted.
                return {"error": error_of(GOING)}
            objects = self._objects()
            static = objects.destination(kind, name) is not None
            return {"ok": {**objects.effective(kind, name).values, "static": static}}

        return late

    async def stays(self, kind: str, name: str) -> None:
        """Waits while a queue or topic is leaving this broker, and is nowhere; `kind` is a manifest's."""
        if kind in _NAMED:
            await self._homes.stays(HomeKey(_NAMED[kind], name))

    async def pattern(self, pattern: str) -> Answer | Late:
        """A pattern that somebody wants to subscribe to."""
        key = HomeKey("pattern", pattern)
        try:
            home = await self._homes.of(key)
        except RefusedError as refused:
            return {"error": error_of(refused)}
        if home != self._homes.name:
            return {"error": error_of(self.moved(f"what matches '{pattern}'", pattern, home))}
        epoch = self._homes.epoch(key)
        return lambda: {"ok": {}} if epoch and self._homes.epoch(key) == epoch else self.pattern(pattern)

    def elsewhere(self, kind: str, name: str, entry: Entry | None) -> RefusedError | None:
        """The refusal for what is known to live on another broker; None: it lives here, or nowhere.

        `kind` is a manifest's, `name` what listings show; `entry` its manifest, if there is one.
        """
        home = self.other_home(kind, name, entry)
        return self.moved(f"the {kind} '{name}'", name, home) if home else None

    def other_home(self, kind: str, name: str, entry: Entry | None) -> str:
        """The other broker on which something is known to live; empty: it lives here, or nowhere, or everywhere.

        Arguments as for `elsewhere`.
        """
        if entry is None and kind not in _NAMED:
            entry = self._objects().named(kind, name)
        view = self._homes.view
        home = home_of(view, entry.resource) if entry else view.home(_NAMED.get(kind, ""), name)
        return "" if home is None or home == self._homes.name else home

    def moved(self, what: str, subject: str, home: str) -> RefusedError:
        """Says where something lives."""
        addresses = self._homes.view.addresses.get(home)
        if not addresses:
            message = f"{what[:1].upper()}{what[1:]} lives on the broker '{home}', which has not been there yet."
            return RefusedError("UNAVAILABLE", subject[:256], message, "Try again when it is.", retryable=True)
        message = f"{what[:1].upper()}{what[1:]} lives on the broker '{home}'."
        remedy = f"Connect to {addresses[0]}."
        return RefusedError("MOVED", subject[:256], message, remedy, retryable=True, addresses=addresses)


def too_early(what: str, subject: str) -> RefusedError:
    """The refusal of what lives here, while the engine has not been told all of it."""
    message = f"{what} has just come to live here, and what hangs on it does not hold yet."
    return RefusedError("UNAVAILABLE", subject[:256], message, "Try again; see the broker's log.", retryable=True)


def _going(what: str, subject: str) -> RefusedError:
    """The refusal of what is not made here, since it is about to leave, and has not left."""
    message = f"{what} is being moved to another broker, and is not made here meanwhile."
    return RefusedError("UNAVAILABLE", subject[:256], message, "Try again; see the broker's log.", retryable=True)


def error_of(refused: RefusedError) -> Answer:
    """A refusal as the engine takes it in the answer to a ticket."""
    return {
        "code": refused.code,
        "subject": refused.subject,
        "message": refused.message,
        "remedy": refused.remedy,
        "retryable": refused.retryable,
        "addresses": list(refused.addresses),
    }
