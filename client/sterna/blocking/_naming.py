"""The faces of looking things up; as in `_faces`, each call waits for its outcome."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from sterna import errors, factories, naming
from sterna.blocking._faces import Connection, opened
from sterna.blocking._portal import Portal
from sterna.destinations import Queue, Topic


class ConnectionFactory(factories.ConnectionFactory):
    """See `sterna.ConnectionFactory`."""

    __slots__ = ()

    def connect(self, **options: Any) -> Connection:  # type: ignore[override]
        """An open connection as the factory says; options are those of `sterna.connect`. Close it, or use `with`."""
        return opened(lambda: factories.ConnectionFactory.connect(self, **options))


def _face(found: factories.ConnectionFactory) -> ConnectionFactory:
    values = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    return ConnectionFactory(**values)


class Naming:
    """See `sterna.Naming`. Its calls come one after the other; close it, or use `with`."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        """Arguments as for `sterna.Naming`."""
        self._portal = Portal()
        try:
            self._twin = self._portal.call(lambda: naming.Naming(url, **options))
        except BaseException:
            self._portal.stop()
            raise

    def lookup(self, name: str) -> ConnectionFactory | Queue | Topic:
        """See `sterna.Naming.lookup`."""
        found = self._portal.run(self._twin.lookup(name))
        return _face(found) if isinstance(found, factories.ConnectionFactory) else found

    def factory(self, name: str) -> ConnectionFactory:
        """See `sterna.Naming.factory`."""
        return _face(self._portal.run(self._twin.factory(name)))

    def queue(self, name: str) -> Queue:
        """See `sterna.Naming.queue`."""
        return self._portal.run(self._twin.queue(name))

    def topic(self, name: str) -> Topic:
        """See `sterna.Naming.topic`."""
        return self._portal.run(self._twin.topic(name))

    def close(self) -> None:
        """Hangs up. What was looked up stays usable."""
        if not self._portal.is_stopped:
            try:
                with contextlib.suppress(errors.ClosedError):  # another thread closes it, too
                    self._portal.run(self._twin.close())
            finally:
                self._portal.stop()

    def __enter__(self) -> Naming:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lookup(name: str, url: str | None = None, **options: Any) -> ConnectionFactory | Queue | Topic:
    """What a name leads to; arguments as for `sterna.lookup`."""
    with Naming(url, **options) as asked:
        return asked.lookup(name)
