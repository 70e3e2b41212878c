"""What `helm test` of the chart asks: `python -m sterna_operator.release_check HOST --port 8080 --replicas 1`.

HOST is the name of a Service without an address of its own, behind which all pods of the operator are, the unready ones
too. Status 0: as many as there should be are ready, and exactly one of them leads. Until then it asks again; status 1
after `--timeout-s`, with what is wrong with each. It needs no rights in Kubernetes.
"""

import argparse
import http.client
import socket
import sys
import time  # noqa: TID251 - a command that people wait for; nothing of it is simulated
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEADING = "sterna_operator_leading"
_ASK_TIMEOUT_S = 5.0
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Answer:
    """What one operator says of itself. `fault`: why it is not ready; empty: it is."""

    address: str
    fault: str = ""
    leads: bool = False


def objection(answers: Sequence[Answer], replicas: int) -> str | None:
    """What is wrong with a release; None: nothing. While it is rolled there may be more than `replicas`."""
    faults = [f"{one.address}: {one.fault}" for one in answers if one.fault]
    if faults:
        return "; ".join(faults)
    if len(answers) < replicas:
        return f"{len(answers)} of {replicas} operators are there"
    leaders = [one.address for one in answers if one.leads]
    if len(leaders) > 1:
        return f"{len(leaders)} operators lead: {', '.join(leaders)}"
    return None if leaders else f"none of {len(answers)} operators leads"


def leads(exposition: str) -> bool:
    """Whether the figures are those of an operator that leads."""
    lines = (line.partition(" ") for line in exposition.splitlines())
    return any(name == LEADING and float(value) == 1.0 for name, _, value in lines)


def ask(address: str, port: int) -> Answer:
    """What the operator at an address says."""
    try:
        status, text = _get(address, port, "/readyz")
        if status != http.client.OK:
            return Answer(address, f"/readyz answers {status}: {text.strip()}")
        status, text = _get(address, port, "/metrics")
        if status != http.client.OK:
            return Answer(address, f"/metrics answers {status}")
        return Answer(address, leads=leads(text))
    except (OSError, http.client.HTTPException) as error:
        return Answer(address, f"port {port}: {type(error).__name__}: {error}")


def _get(address: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=_ASK_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def addresses(host: str, port: int) -> list[str]:
    """All addresses of a name; none when it has none yet."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return sorted({str(one[4][0]) for one in found})


def checked(
    find: Callable[[], list[str]], port: int, replicas: int, timeout_s: float
) -> tuple[list[Answer], str | None]:
    """The last answers, and what was wrong with them in the end; None: nothing."""
    until = time.monotonic() + timeout_s
    while True:
        answers = [ask(address, port) for address in find()]
        wrong = objection(answers, replicas)
        if wrong is None or time.monotonic() >= until:
            return answers, wrong
        time.sleep(_PAUSE_S)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser("sterna_operator.release_check", description=__doc__.split("\n", 1)[0])
    parser.add_argument("host")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--timeout-s", type=float, default=90.0)
    given = parser.parse_args(arguments)
    answers, wrong = checked(lambda: addresses(given.host, given.port), given.port, given.replicas, given.timeout_s)
    for one in answers:
        print(f"{one.address}: {one.fault or ('ready, and leads' if one.leads else 'ready')}")
    if wrong is not None:
        print(f"not as it should be: {wrong}", file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
