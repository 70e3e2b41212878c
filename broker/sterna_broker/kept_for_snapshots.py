"""What waits on the disk for a snapshot, and a word in time when nobody takes one.

The engine keeps it within bounds and gives it up beyond them, so that it never holds up a send; a snapshot that comes
too late says what is missing. At half of the bounds it is said: by /readyz, by metrics and, once, in the log.
"""

import json
from typing import Any

import structlog

from sterna_broker.pump import Pump
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="snapshots")

_MEBIBYTE = 1024 * 1024
_HOUR_MS = 3_600_000


class Kept:
    """`start`, then `stop`, each once; the others may be called at any time between."""

    def __init__(self, pump: Pump, bytes_max: int, age_max_ms: int) -> None:
        self._pump = pump
        self._bytes_max = bytes_max
        self._age_max_ms = age_max_ms
        self._is_half_full = False
        self._gaps = 0
        self._is_on = False

    def start(self) -> None:
        """There is an engine to ask from now on."""
        self._is_on = True

    def stop(self) -> None:
        """The engine is asked no more."""
        self._is_on = False

    def facts(self) -> dict[str, Any]:
        """What the engine says of it: `kept_bytes`, `kept_since_ms`, `half_full`, `kept_gaps` and `exported`."""
        found: dict[str, Any] = json.loads(self._pump.tick().cut_progress())
        return found

    def age_s(self, facts: dict[str, Any]) -> float:
        """How old the oldest of it is, in seconds."""
        since_ms = facts["kept_since_ms"]
        return max(0, wall_ms() - since_ms) / 1000 if since_ms is not None else 0.0

    def warnings(self) -> list[str]:
        """What people should know of it; nothing before the start and after the stop."""
        if not self._is_on or not (facts := self.facts())["half_full"]:
            return []
        size = f"{facts['kept_bytes'] // _MEBIBYTE:,} of {self._bytes_max // _MEBIBYTE:,} MiB"
        age = f"{self.age_s(facts) * 1000 / _HOUR_MS:.0f} of {self._age_max_ms / _HOUR_MS:.0f} hours"
        return [f"a snapshot is due: {size} wait for it, the oldest for {age}; beyond that the oldest is given up"]

    def tell(self) -> None:
        """Logs what is new since the last look; called every few seconds."""
        facts = self.facts()
        if facts["half_full"] and not self._is_half_full:
            _log.warning(
                "snapshot_due",
                kept_bytes=facts["kept_bytes"],
                bytes_max=self._bytes_max,
                age_s=round(self.age_s(facts)),
                age_max_s=self._age_max_ms // 1000,
            )
        if facts["kept_gaps"] > self._gaps:
            _log.warning("snapshot_has_gaps", gaps=facts["kept_gaps"])
        self._is_half_full, self._gaps = facts["half_full"], facts["kept_gaps"]
