"""Who was let in on which stream, and that they go when what let them in is taken back.

A connection that is ended so is told why; it may come back at once, with another password if it has one. It is closed
as a whole: its sessions end, and what it had not acknowledged goes to others. Connections are
found by user and peer: two of one user that share one TCP connection go together, though only one of them was meant.
"""

import asyncio
import json
from typing import Any

import structlog

from sterna_broker.access.authentication import Authentication, Proof
from sterna_broker.pump import Port, Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.connect import Call

_log = structlog.get_logger(part="access")

_SLACK = 100
# How long a stream that was told to end may take. One that joined another's connection is not told, since the engine
# lists that connection where it came from first: it ends after this time.
_GRACE_S = 1.0
_REASON = "The credential that this connection was opened with is not valid any more."


class Admissions:
    """The streams of clients, each with its proof."""

    def __init__(self, authentication: Authentication, pump: Pump) -> None:
        self._authentication = authentication
        self._pump = pump
        self._proofs: dict[int, Proof] = {}
        self._endings: set[asyncio.TimerHandle] = set()

    def stop(self) -> None:
        """Ends nobody any more."""
        for ending in self._endings:
            ending.cancel()

    def admit(self, stream: int, proof: Proof) -> None:
        """Notes who is on a stream."""
        if len(self._proofs) > 2 * len(self._pump.ports) + _SLACK:
            self._forget_gone()
        self._proofs[stream] = proof

    def check(self) -> int:
        """Ends the connections of all whose proof does not hold any more; how many streams those were."""
        self._forget_gone()
        doomed = {
            stream: proof for stream, proof in self._proofs.items() if not self._authentication.still_holds(proof)
        }
        if doomed:
            self._end(doomed)
        return len(doomed)

    def _forget_gone(self) -> None:
        ports = self._pump.ports
        self._proofs = {stream: proof for stream, proof in self._proofs.items() if stream in ports}

    def _end(self, doomed: dict[int, Proof]) -> None:
        ports = self._pump.ports
        places = {(proof.user, _peer(ports.get(stream))) for stream, proof in doomed.items()}
        for row in self._rows():
            if (row["user"], row["peer"]) in places:
                self._pump.engine.close_connection(row["id"], _REASON)
        users = {proof.user for proof in doomed.values()}
        for stream in doomed:
            del self._proofs[stream]
        self._pump.touch()
        _log.warning("connections_of_revoked_credentials_closed", users=sorted(users)[:20], streams=len(doomed))
        ending = asyncio.get_running_loop().call_later(_GRACE_S, self._end_rest, tuple(doomed))
        self._endings = {one for one in self._endings if one.when() > ending.when() - 2 * _GRACE_S}
        self._endings.add(ending)

    def _end_rest(self, streams: tuple[int, ...]) -> None:
        """Ends those that are still there."""
        for stream in streams:
            port = self._pump.ports.get(stream)
            if isinstance(port, Call):
                port.end(RefusedError("CLOSED", "connection", _REASON, "Connect again.", retryable=True))
        self._pump.touch()

    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self._pump.tick().connections())
        return rows


def _peer(port: Port | None) -> str:
    return port.peer if isinstance(port, Call) else ""
