"""Answers to what the engine's compiled tables do not know.

That is: who may connect (which `access` decides), and which destinations may come into being.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from sterna_resources import names

from sterna_broker.cluster.desk import Answer, ClusterDesk, Late, error_of
from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.objects import ObjectSet


class TicketDesk:
    """Answers tickets from the configuration that holds at that moment; `greet` answers those of newcomers."""

    def __init__(
        self,
        objects: Callable[[], ObjectSet],
        greet: Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]],
        cluster: ClusterDesk | None = None,
    ) -> None:
        self._objects = objects
        self._greet = greet
        self._cluster = cluster

    def answer(self, ticket: dict[str, Any]) -> dict[str, Any] | Awaitable[Answer | Late]:
        """The engine's answer to `ticket`: `{"ok": …}` or `{"error": …}`, perhaps later."""
        match ticket["kind"]:
            case "hello":
                return self._greet(ticket)
            case "destination":
                return self._destination(_kind(ticket), ticket["name"])
            case "properties":
                # It exists, and messages in it wait for this: neither where it lives nor who may make it matters.
                return {"ok": self._objects().effective(_kind(ticket), ticket["name"]).values}
            case "pattern":
                return self._cluster.pattern(ticket["pattern"]) if self._cluster else {"ok": {}}
            case other:
                raise ValueError(f"a ticket of an unknown kind: {other}")

    def _destination(self, kind: Kind, name: str) -> dict[str, Any] | Awaitable[Answer | Late]:
        if fault := names.name_fault(name):
            return _refused("INVALID_NAME", name[:64], f"Not a name: {fault}.", "Choose a name within the rules.")
        objects = self._objects()
        if self._cluster is not None and (self._cluster.lives_elsewhere(kind, name) or objects.allows(kind, name)):
            return self._cluster.destination(kind, name)
        if not objects.allows(kind, name):
            if self._cluster is not None and (doubt := self._cluster.doubt(kind, name)) is not None:
                return {"error": error_of(doubt)}
            manifest = "Queue" if kind == "queue" else "Topic"
            parent = name.rpartition(".")[0]
            entry = f"{parent}.>" if parent else ">"
            return _refused(
                "NO_SUCH_DESTINATION",
                name,
                f"There is no {kind} '{name}', and no wildcard entry lets it be created.",
                f"Apply a {manifest} manifest for '{name}', or one with the wildcard '{entry}'.",
            )
        static = objects.destination(kind, name) is not None
        return {"ok": {**objects.effective(kind, name).values, "static": static}}


def _kind(ticket: dict[str, Any]) -> Kind:
    """The kind of the destination, which stands beside the kind of the ticket."""
    return "queue" if str(ticket["destination"]).lower() == "queue" else "topic"


def _refused(code: str, subject: str, message: str, remedy: str) -> dict[str, Any]:
    error = {"code": code, "subject": subject, "message": message, "remedy": remedy, "retryable": False}
    return {"error": error}
