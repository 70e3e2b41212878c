"""Whether the broker should be sent clients, and if not, why."""

from dataclasses import dataclass, field
from typing import Any

from sterna_broker.statistics import engine_state


@dataclass(frozen=True)
class Readiness:
    """`ready`, with the reasons if it is not, and with what people should know even if it is."""

    ready: bool
    reasons: list[str]
    warnings: list[str] = field(default_factory=list)

    def document(self, state: str) -> dict[str, Any]:
        """As the probe answers."""
        return {"ready": self.ready, "state": state, "reasons": self.reasons, "warnings": self.warnings}


def judge(state: str, statistics: dict[str, Any] | None, warnings: list[str] | None = None) -> Readiness:
    """Judges by the process's state and the engine's figures (None: there is no engine yet)."""
    reasons = []
    if state != "serving":
        reasons.append(f"the broker is {state}")
    if statistics is not None and (fault := engine_state(statistics)):
        reasons.append(f"the engine has {fault}")
    if statistics is not None and statistics.get("out_of_space"):
        reasons.append("the disk is full: messages can be consumed, not sent")
    elif short := _short_of(statistics, "needed_bytes"):
        reasons.append(f"the disk is full after a few messages: {short}")
    return Readiness(not reasons, reasons, [*(warnings or []), *_log_warnings(statistics)])


def _short_of(statistics: dict[str, Any] | None, figure: str) -> str:
    """What the disk has too little room for, of all that a log which is small yet will set aside; or nothing."""
    log = (statistics or {}).get("log") or {}
    needed, free = log.get(figure, 0), log.get("free_bytes", 0)
    # Not how many are free: each second it would be news to whoever keeps what is said here.
    return f"the log needs {needed} more bytes of it" if needed > free else ""


def _log_warnings(statistics: dict[str, Any] | None) -> list[str]:
    """What of the log is damaged, and what the disk lacks; the broker serves all the same."""
    log = (statistics or {}).get("log") or {}
    warnings = [
        f"{place['file']} is damaged at offset {place['offset']} (position {place['position']}): {place['why']}"
        for place in log.get("damage", [])
    ]
    if (rest := log.get("damaged_places", 0) - len(warnings)) > 0:
        warnings.append(f"{rest} more places of the log are damaged")
    if log.get("shortage"):
        warnings.append(f"the disk is asked again each second: {log['shortage']}")
    elif short := _short_of(statistics, "wanted_bytes"):
        warnings.append(f"the disk has no room for all that is set aside for a full one: {short}")
    return warnings
