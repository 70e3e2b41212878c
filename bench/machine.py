"""Under which conditions a figure was measured: without them it says nothing."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from sterna._grpc_experiments import VARIABLE

_PACKAGES = ("sterna", "sterna-core", "grpcio", "protobuf")


def conditions(data_folder: Path) -> dict[str, Any]:
    """The machine, its software and the date; `data_folder` is where the brokers keep their data."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "file_system": _file_system(data_folder),
        "load_before": load(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        # grpc's own where it is empty.
        "grpc_experiments": os.environ.get(VARIABLE, ""),
        "where": "brokers and clients on one machine, over loopback, without TLS",
    }


def load() -> float:
    """How many processes wanted a core at once, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """The type of the file system that the folder is on: the mount with the longest matching path."""
    best, kind = "", "unknown"
    resolved = str(folder.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, name, *_ = line.split()
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, name
    return kind


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
