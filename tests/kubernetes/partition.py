"""Cutting two pods off from each other on the local cluster: packets are dropped in the node's network namespace.

Packets vanish, as with a broken switch: connections stay open and nothing comes, which is what is hardest to notice.
"""

import contextlib
import subprocess
from collections.abc import Iterator

from tests.kubernetes.kubectl import run

_NODE = ("nsenter", "--net=/var/run/netns/sterna-k8s", "iptables", "--wait")
_CHAIN = "FORWARD"


@contextlib.contextmanager
def between(one: str, other: str) -> Iterator[None]:
    """While it is entered, nothing that either of two addresses sends reaches the other."""
    rules = [("--source", a, "--destination", b, "--jump", "DROP") for a, b in ((one, other), (other, one))]
    try:
        for rule in rules:
            run(*_NODE, "--insert", _CHAIN, *rule)
        yield
    finally:
        for rule in rules:
            # One that was never put in place cannot be taken away.
            subprocess.run([*_NODE, "--delete", _CHAIN, *rule], capture_output=True, check=False)
