"""SIGKILL for what runs in a pod, as from a machine that fails, and the end of a pod without a moment's notice.

A container cannot send it to its own first process. Where the node is this machine it is sent from here, and the
kubelet starts the container anew; elsewhere the pod is removed by force, which ends it as hard.
"""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.kubectl import Namespace

# Of a process, by its folder in /proc.
IsWanted = Callable[[Path], bool]


def broker(pod: str) -> IsWanted:
    """Whether a process is a broker's."""
    return lambda process: _said(process)[1:5] == ["/opt/sterna/bin/sterna", "broker", "--name", pod]


def etcd(namespace: Namespace, cluster: str) -> IsWanted:
    """Whether a process is a cluster's managed etcd."""
    own = f"://{cluster}-etcd.{namespace.name}.svc:2379"

    def is_etcd(process: Path) -> bool:
        program, *arguments = _said(process)
        return program == "etcd" and any(
            one.startswith("--advertise-client-urls=") and one.endswith(own) for one in arguments
        )

    return is_etcd


def operator(pod: str) -> IsWanted:
    """Whether a process is the operator of a pod: it is told the pod's name."""
    return lambda process: f"POD_NAME={pod}" in _entries(process / "environ")


def kill(namespace: Namespace, pod: str, is_wanted: IsWanted) -> None:
    """Kills a pod's process and waits until the kubelet has started another one; or removes the pod, see the module."""
    before = _restarts(namespace, pod)
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_wanted(entry)]
    if not found:
        remove(namespace, pod)
        return
    for process in found:
        os.kill(process, signal.SIGKILL)
    namespace.wait(lambda: _restarts(namespace, pod) > before, 90, "the container restarted")


def remove(namespace: Namespace, pod: str) -> None:
    """Takes a pod away without a moment's notice, and waits until there is another one of its name."""
    before = _uid(namespace, pod)
    namespace.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
    namespace.wait(lambda: _uid(namespace, pod) not in (before, None), 90, f"another pod {pod}")


def is_ready(pod: Mapping[str, Any] | None) -> bool:
    """Whether a pod is Ready."""
    conditions = (pod or {}).get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _said(process: Path) -> list[str]:
    return _entries(process / "cmdline")


def _entries(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").split("\0")
    except OSError:
        return [""]  # it has ended


def _uid(namespace: Namespace, pod: str) -> str | None:
    found = namespace.get("pod", pod)
    return found["metadata"]["uid"] if found else None


def _restarts(namespace: Namespace, pod: str) -> int:
    found = namespace.get("pod", pod) or {}
    return sum(one["restartCount"] for one in found.get("status", {}).get("containerStatuses") or ())
