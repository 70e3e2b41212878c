"""What runs in the operator's process of a test: the operator itself, which counts its writes, and may kill itself.

Right after a certain write, wherever that went, it ends by SIGKILL if it is told to: whatever follows in the same plan
is then left undone, as by a power cut at the worst moment. Or it freezes there, by SIGSTOP: whatever follows is done
when it is woken, which may be when another operator has long taken over.

`launch` is called in a process that was forked from one that has everything loaded, or by `python -m`.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterna_etcd import Event
from sterna_operator import following, main, mirror, running, worker
from sterna_operator.keys import Key
from sterna_operator.kinds import registry
from sterna_operator.plans import Plan
from sterna_operator.settings import OperatorSettings
from sterna_operator.view import Child, Decision, View, open_etcd

_PATHS = ("kubeconfig", "ready_file")


def told_apart(write: str, namespace: str) -> str:
    """A write as it reads in whatever namespace the same is done; one event is as good as another."""
    return "an event" if "/events" in write else re.sub(rf"\b{re.escape(namespace)}\b", "<namespace>", write)


class Writes:
    """The writes of this process, one a line of a file; after the `fatal` one the process gets a signal.

    `fatal` is a write as `told_apart` gives it, and how often it has to have been made; None: there is none.
    """

    def __init__(self, file: Path, namespace: str, fatal: tuple[str, int] | None, number: signal.Signals) -> None:
        self._file = file
        self._namespace = namespace
        self._fatal = fatal
        self._signal = number
        self._counts: Counter[str] = Counter()

    def note(self, *what: str) -> None:
        """One write: method and path, or the key in etcd. The Lease is written all the time, and not counted."""
        if what[-1].endswith("/leases") or "/leases/" in what[-1]:
            return
        with self._file.open("a") as file:
            file.write(" ".join(what) + "\n")
        write = told_apart(" ".join(what), self._namespace)
        self._counts[write] += 1
        if self._fatal == (write, self._counts[write]):
            os.kill(os.getpid(), self._signal)


class OnlyEtcd:
    """Of a cluster nothing but its etcd: tests of everything else need no StatefulSets that nobody starts."""

    name = "MessagingCluster"
    children: tuple[Child, ...] = ()

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        await open_etcd(view, object)
        return Decision(Plan())

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """See view.Kind."""
        return []


def _be_deaf(name: str) -> None:
    """Has no watch tell of what happens to an object of this name: neither etcd's, nor the API server's of changes."""
    take, tell = mirror.Mirror.take, following.Follower._tell

    def take_others(self: mirror.Mirror, event: Event) -> mirror.Change | None:
        return None if event.key.endswith(f"/{name}") else take(self, event)

    def tell_others(self: following.Follower, event: str | None, object: Mapping[str, Any]) -> None:
        if event != "MODIFIED" or object["metadata"]["name"] != name:
            tell(self, event, object)

    mirror.Mirror.take = take_others  # type: ignore[method-assign]
    following.Follower._tell = tell_others  # type: ignore[method-assign]


def launch(flags: Mapping[str, Any]) -> None:
    """Runs an operator, and ends the process with its status."""
    given = dict(flags)
    number = signal.SIGSTOP if given.pop("freezes") else signal.SIGKILL
    fatal = given.pop("fatal")
    namespace = next(iter(given.get("namespaces", ())), "")
    writes = Writes(Path(given.pop("counts")), namespace, fatal and (fatal[0], fatal[1]), number)
    if (silence_s := given.pop("silence_s", None)) is not None:
        worker._SILENCE_S = silence_s
    if (untold := given.pop("untold", None)) is not None:
        _be_deaf(untold)
    if given.pop("only_etcd"):
        running.kinds = lambda: {**registry.kinds(), "MessagingCluster": OnlyEtcd()}  # type: ignore[attr-defined]
    made = running.assemble

    def assemble(settings: OperatorSettings, configuration: Any) -> running.Parts:
        parts = made(settings, configuration)
        parts.kube.on_write = writes.note
        parts.clusters.on_write = writes.note
        return parts

    running.assemble = assemble
    for name in _PATHS:
        given[name] = Path(given[name])
    given["namespaces"] = tuple(given.get("namespaces", ()))
    main._set_up_logs("json", to_stderr=False)
    status = asyncio.run(running.run(OperatorSettings(**given)))
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    launch(json.loads(sys.argv[1]))
