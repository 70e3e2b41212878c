"""What the command line says to a broker, and what holds in the end.

Flags come before the Broker manifest, and that before the defaults.
"""

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sterna_resources.broker import Broker, BrokerLimits, BrokerSpec

from sterna_broker import addresses
from sterna_broker.addresses import Address

DEFAULT_MESSAGING = "127.0.0.1:7222"
DEFAULT_MONITOR = "127.0.0.1:7280"
DEFAULT_NAME = "sterna"

# What the engine is told of the limits; the others are the broker's own.
_OWN_LIMITS = {"connections", "leases"}


@dataclass(frozen=True)
class BrokerOptions:
    """The flags of `sterna broker`; None: not given."""

    data: Path
    """The folder that the broker keeps everything in. Made with mode 0700 if it is missing."""

    config: Path | None = None
    """The folder of manifests. None: any queue and topic may be created, all settings are defaults."""

    name: str | None = None
    """The broker's name, as in message ids."""

    listen: str | None = None
    """host:port for gRPC; port 0 takes a free one."""

    monitor: str | None = None
    """host:port for probes and metrics; port 0 takes a free one."""

    drain_ms: int | None = None
    """How long a stopping broker waits for its clients."""

    force_start: bool = False
    """Start although stored records are damaged: each is dropped and reported (EMS-STORE-A14)."""

    ready_file: Path | None = None
    """A file that appears, with the addresses as JSON, once the broker serves."""

    log_format: Literal["auto", "console", "json"] = "auto"
    """How logs are written to stderr; auto: console on a terminal, otherwise json."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important level that is written."""


@dataclass(frozen=True)
class Settings:
    """What holds."""

    name: str
    messaging: Address
    monitor: Address
    drain_ms: int
    slow_consumer_ms: int
    metrics_destinations: int
    limits: BrokerLimits
    engine: dict[str, Any] = field(default_factory=dict)

    def engine_json(self) -> str:
        """For `Engine.open`."""
        return json.dumps(self.engine)


def settle(options: BrokerOptions, manifest: Broker | None, version: str) -> Settings:
    """Puts flags, manifest and defaults together.

    Raises:
        AddressError: an address cannot be used.
    """
    spec = manifest.spec if manifest else BrokerSpec()
    name = options.name or (manifest.broker_name if manifest else DEFAULT_NAME)
    limits = spec.limits
    engine = {
        "broker": name,
        "product": f"sterna {version}",
        # Used when the store is new; an existing one keeps its own.
        "store_id": secrets.token_hex(16),
        "force_start": options.force_start,
        "segment_bytes": spec.log.segment_bytes,
        "cache_bytes": spec.log.cache_bytes,
        "volatile_bytes": spec.log.volatile_bytes,
        "slow_consumer_ms": spec.slow_consumer_ms,
        "limits": {key: value for key, value in limits.model_dump().items() if key not in _OWN_LIMITS},
    }
    messaging = options.listen or spec.listeners.messaging or DEFAULT_MESSAGING
    monitor = options.monitor or spec.listeners.monitor or DEFAULT_MONITOR
    return Settings(
        name=name,
        messaging=addresses.parse(messaging, "listen"),
        monitor=addresses.parse(monitor, "monitor"),
        drain_ms=spec.drain_ms if options.drain_ms is None else options.drain_ms,
        slow_consumer_ms=spec.slow_consumer_ms,
        metrics_destinations=spec.metrics_destinations,
        limits=limits,
        engine=engine,
    )
