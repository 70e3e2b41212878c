"""Broker: the settings of one broker process."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import Model, Size
from sterna_resources.resource import Resource

MEBIBYTE = 1024 * 1024
STORES_MAX = 64
SYSTEM_STORES = {"$sys.failsafe": "sync", "$sys.nonfailsafe": "async"}


def _check_broker_name(text: str) -> str:
    if any(character in ".:/ \t" or not character.isprintable() for character in text):
        fault = "may not hold dots, colons, slashes, blanks or control characters: it is part of message ids"
        raise PydanticCustomError("broker_name", "{fault}", {"fault": fault})
    return text


def _check_store_name(text: str) -> str:
    if text.startswith("$") and text not in SYSTEM_STORES:
        fault = f"'{text}' begins with '$': of such stores there are only {' and '.join(SYSTEM_STORES)}"
        raise PydanticCustomError("store_name", "{fault}", {"fault": fault})
    return text


_Address = Annotated[str, Field(min_length=1, max_length=300, json_schema_extra={"examples": ["127.0.0.1:7222"]})]


class Listeners(Model):
    """Where the broker listens: `host:port`; port 0 takes a free one."""

    messaging: _Address | None = None
    """gRPC, for clients and administration. Default `127.0.0.1:7222`."""

    monitor: _Address | None = None
    """HTTP, for probes and metrics. Default `127.0.0.1:7280`."""


class BrokerLimits(Model):
    """What the broker accepts. A refusal names the limit by its field; see Limits in messaging.proto."""

    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Connections at once."""

    frame_bytes: int = Field(default=MEBIBYTE, ge=65_536, le=16 * MEBIBYTE)
    """One batch of frames, encoded."""

    message_bytes: int = Field(default=16 * MEBIBYTE, ge=65_536, le=1024 * MEBIBYTE)
    """One message with its uploaded body."""

    sessions: int = Field(default=256, ge=1, le=65_536)
    """Sessions of one connection."""

    producers: int = Field(default=1_024, ge=1, le=1_000_000)
    """Producers of one connection."""

    consumers: int = Field(default=1_024, ge=1, le=1_000_000)
    """Consumers of one connection."""

    inflight_bytes: int = Field(default=64 * MEBIBYTE, ge=65_536, le=4096 * MEBIBYTE)
    """Bytes published and not yet confirmed, of one connection."""

    unacknowledged_messages: int = Field(default=262_144, ge=1, le=16_777_216)
    """Messages delivered and not yet acknowledged, of one session."""

    transaction_messages: int = Field(default=262_144, ge=1, le=16_777_216)
    """Messages sent and acknowledged within one transaction."""

    upload_bytes: int = Field(default=64 * MEBIBYTE, ge=65_536, le=4096 * MEBIBYTE)
    """Uploaded bytes not yet published, of one connection."""

    selector_bytes: int = Field(default=65_536, ge=256, le=MEBIBYTE)
    """One selector's text."""

    temporaries: int = Field(default=1_024, ge=0, le=1_000_000)
    """Temporary destinations of one connection."""

    leases: int = Field(default=1_000, ge=1, le=100_000)
    """Unary Receive calls whose messages are not acknowledged yet, of all clients together."""


class Store(Model):
    """A label that destinations name, with what it promises and how much it may hold."""

    name: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_store_name)]
    """The store's name. `$sys.failsafe` and `$sys.nonfailsafe` exist anyway and may be given a quota here."""

    mode: Literal["sync", "async"] | None = None
    """`sync` (default): a message is confirmed when it is on disk. `async`: when it is accepted; it reaches the disk
    shortly after. The two system stores keep theirs, sync and async."""

    quota_bytes: Size = 0
    """The most bytes that its destinations may hold together; 0: no quota."""

    @model_validator(mode="after")
    def _system_stores_keep_their_mode(self) -> Self:
        own = SYSTEM_STORES.get(self.name)
        if own is not None and self.mode not in (None, own):
            fault = f"{self.name} is always {own}: give the destinations another store"
            raise PydanticCustomError("store_mode", "{fault}", {"fault": fault})
        return self

    @property
    def effective_mode(self) -> str:
        """What holds: as written, or a system store's own."""
        return SYSTEM_STORES.get(self.name) or self.mode or "sync"


class LogSettings(Model):
    """How the broker keeps messages. Sizes of memory are budgets of the engine, not of the whole process."""

    segment_bytes: int = Field(default=64 * MEBIBYTE, ge=MEBIBYTE, le=1024 * MEBIBYTE)
    """The size of one file of the log."""

    cache_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE, le=1024 * 1024 * MEBIBYTE)
    """Memory for the payloads of stored messages; what does not fit is read from disk when it is delivered."""

    volatile_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE, le=1024 * 1024 * MEBIBYTE)
    """Memory for non-persistent messages; what does not fit goes to a spill file."""


class BrokerSpec(Model):
    """The broker's settings; a flag of the command line comes before each."""

    name: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_broker_name)] | None = None
    """The broker's name, as in message ids; `metadata.name` when absent."""

    listeners: Listeners = Field(default_factory=Listeners)
    """Where the broker listens. Loopback addresses only, until there are TLS and users."""

    limits: BrokerLimits = Field(default_factory=BrokerLimits)
    """What the broker accepts."""

    stores: list[Store] = Field(default_factory=list, max_length=STORES_MAX)
    """The stores that destinations may name, besides `$sys.failsafe` and `$sys.nonfailsafe`."""

    log: LogSettings = Field(default_factory=LogSettings)
    """How the broker keeps messages."""

    drain_ms: int = Field(default=10_000, ge=0, le=600_000)
    """How long a stopping broker waits for its clients to leave."""

    slow_consumer_ms: int = Field(default=30_000, ge=100, le=3_600_000)
    """How long a client may leave unread what it asked for before it is cut off."""

    metrics_destinations: int = Field(default=100, ge=0, le=10_000)
    """How many destinations of each kind the metrics list one by one (those holding the most); the rest are summed
    up."""

    @model_validator(mode="after")
    def _stores_are_distinct(self) -> Self:
        seen: set[str] = set()
        for store in self.stores:
            if store.name in seen:
                fault = f"the store {store.name} is named twice"
                raise PydanticCustomError("store_twice", "{fault}", {"fault": fault})
            seen.add(store.name)
        return self


class Broker(Resource):
    """The settings of the broker that reads the folder; at most one of them. They take effect at start."""

    PLURAL: ClassVar[str] = "brokers"

    kind: Literal["Broker"] = "Broker"
    """`Broker`."""

    spec: BrokerSpec = Field(default_factory=BrokerSpec)
    """The broker's settings."""

    @property
    def broker_name(self) -> str:
        """The name in message ids."""
        return self.spec.name or self.metadata.name.replace(".", "-")
