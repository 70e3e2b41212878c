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
    return Readiness(not reasons, reasons, warnings or [])
