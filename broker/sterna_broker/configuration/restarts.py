"""Which settings of a changed Broker manifest wait for the next start: all that the start alone reads, its stores not.

The live configuration asks, for the answer to an apply, for listings, probes and the log. What a flag of the command
line says holds whatever the manifest says, at the next start, too: it is told once, to who writes it.
"""

import json
from collections.abc import Mapping
from typing import Any

from sterna_resources.broker import Broker, BrokerSpec

# Handed to the engine whenever they change.
_AT_ONCE = "stores"
_TOLD_MAX = 5


class Restarts:
    """What one start of a broker has read: its manifest, and the flags that come before it."""

    def __init__(
        self, started: Broker | None, flags: Mapping[str, tuple[str, Any]], defaults: Mapping[str, Any]
    ) -> None:
        """What a start has read.

        `flags`: by field below spec, the flag and what it says. `defaults`: what holds where a manifest says nothing
        and its model does not know.
        """
        self._flags = flags
        self._defaults = defaults
        self._started = self._read(started)

    def due(self, broker: Broker | None) -> list[str]:
        """What differs from what holds, each as `field: old -> new`; with a manifest of now, or none."""
        now = self._read(broker)
        field_of_name = "metadata.name" if broker is not None and broker.spec.name is None else "spec.name"
        return [
            f"{field_of_name if field == 'name' else f'spec.{field}'}: {_shown(self._started[field])} -> {_shown(new)}"
            for field, new in now.items()
            if field not in self._flags and self._started[field] != new
        ]

    def warnings(self, broker: Broker) -> list[str]:
        """For who applies this manifest: what of it does not hold now, and when it does."""
        told = [f"{change} holds from the broker's next start on" for change in self.due(broker)]
        written = _flat(broker.spec.written())
        for field, (flag, given) in self._flags.items():
            if field in written and written[field] != given:
                by = f"{flag} {_shown(given)} of the command line comes before it"
                told.append(f"spec.{field}: {_shown(written[field])} does not hold, since {by}")
        return told

    def warning(self, broker: Broker | None) -> str:
        """For who looks at the broker; empty: no restart is due."""
        due = self.due(broker)
        more = f"; and {len(due) - _TOLD_MAX} more" if len(due) > _TOLD_MAX else ""
        told = "; ".join(due[:_TOLD_MAX])
        return f"a restart is due: of the Broker manifest there hold from the next start on {told}{more}" if due else ""

    def _read(self, broker: Broker | None) -> dict[str, Any]:
        """Every setting that a start reads, by its field below spec."""
        spec = broker.spec if broker is not None else BrokerSpec()
        values = _flat(spec.model_dump(by_alias=True, mode="json", exclude={_AT_ONCE}))
        values["name"] = broker.broker_name if broker is not None else None
        return {field: self._defaults.get(field) if value is None else value for field, value in values.items()}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _shown(value: Any) -> str:
    return "(default)" if value is None else json.dumps(value, ensure_ascii=False)
