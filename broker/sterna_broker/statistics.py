"""The broker's figures: the engine's, with what only the process knows."""

import json
import os
from pathlib import Path
from typing import Any

from sterna_broker.contract import admin
from sterna_broker.pump import Pump
from sterna_broker.server.rows import fill

_PAGE_BYTES = 4096


class StatisticsSource:
    """Fills in the contract's Statistics; `state` is what the process says of itself."""

    def __init__(self, pump: Pump, version: str, started_ms: int, recovery: dict[str, Any], folder: Path) -> None:
        self._pump = pump
        self._version = version
        self._started_ms = started_ms
        self.recovery = recovery
        self._folder = folder
        self.state = "starting"

    def message(self) -> admin.Statistics:
        """The figures as of now."""
        result = admin.Statistics()
        figures = self.engine()
        fill(result, figures)
        fill(result.recovery, self.recovery)
        result.state = engine_state(figures) or self.state
        result.version, result.started_ms = self._version, self._started_ms
        result.resident_bytes = resident_bytes()
        return result

    def engine(self) -> dict[str, Any]:
        """The engine's own, as it writes them, and what is free on its disk."""
        result: dict[str, Any] = json.loads(self._pump.tick().statistics())
        result["log"]["free_bytes"] = self._free_bytes()
        return result

    def _free_bytes(self) -> int:
        system = os.statvfs(self._folder)
        return system.f_bavail * system.f_frsize


def engine_state(figures: dict[str, Any]) -> str:
    """What keeps the engine from serving, or nothing. A full disk does not: consumers can drain it."""
    failed = figures.get("failed")
    return f"failed: {failed}" if failed else ""


def resident_bytes() -> int:
    """The process's memory, as the kernel counts it. The file is the kernel's: reading it waits for no disk."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
