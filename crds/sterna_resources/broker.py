"""Broker: the settings of one broker process."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import BrokerName, Model, Size, section
from sterna_resources.resource import Resource
from sterna_resources.rules import Rule, of_field
from sterna_resources.store import StoreMode, StoreName, check_mode, effective_mode

MEBIBYTE = 1024 * 1024
STORES_MAX = 64

# A broker takes messages while it has more than so many files of the log: the one that is written, one to go on in, and
# the two of the reserve by which a full disk is emptied. tests/broker/test_small_volumes.py holds it against real
# brokers.
SERVING_SEGMENTS = 4

_MESSAGE_TOO_LARGE = "limits.messageBytes may be half of log.segmentBytes at most"


_Address = Annotated[str, Field(min_length=1, max_length=300, json_schema_extra={"examples": ["127.0.0.1:7222"]})]


TRANSACTION_MS_MIN = 100
TRANSACTION_MS_MAX = 86_400_000
_NO_TRANSACTION_MS = f"must be 0 or from {TRANSACTION_MS_MIN} to {TRANSACTION_MS_MAX}"


def _check_transaction_ms(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < TRANSACTION_MS_MIN:
        raise PydanticCustomError("transaction_ms", "{fault}", {"fault": _NO_TRANSACTION_MS})
    return value


# What is shorter would be a mistake in the unit, and no transaction would ever be committed.
_TransactionMs = Annotated[
    int,
    Field(
        ge=0,
        le=TRANSACTION_MS_MAX,
        json_schema_extra=of_field(Rule(f"self == 0 || self >= {TRANSACTION_MS_MIN}", _NO_TRANSACTION_MS)),
    ),
    BeforeValidator(_check_transaction_ms),
]


class Listeners(Model):
    """Where the broker listens: `host:port`; port 0 takes a free one."""

    messaging: _Address | None = None
    """gRPC, for clients and administration. Default `127.0.0.1:7222`. In EMS: `listen`."""

    monitor: _Address | None = None
    """HTTP, for probes and metrics. Default `127.0.0.1:7280`. In EMS: `monitor_listen`."""


class BrokerLimits(Model):
    """What the broker accepts. A refusal names the limit by its field; see Limits in messaging.proto."""

    connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Connections at once. In EMS: `max_connections`."""

    frame_bytes: int = Field(default=MEBIBYTE, ge=65_536, le=16 * MEBIBYTE)
    """One batch of frames, encoded."""

    message_bytes: int = Field(default=16 * MEBIBYTE, ge=65_536, le=1024 * MEBIBYTE)
    """One message with its uploaded body. At most half of log.segmentBytes, since it lies in one file; what is larger
    than uploadBytes cannot be sent, so that is raised with it. In EMS: `max_client_msg_size`."""

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

    transactions: int = Field(default=1_024, ge=1, le=65_536)
    """Transactions begun and not ended, of one session."""

    transaction_ms: _TransactionMs = 0
    """How long a transaction may be open, since its first send or receive; then it is rolled back, and its client told.
    0: as long as its session."""

    upload_bytes: int = Field(default=64 * MEBIBYTE, ge=65_536, le=4096 * MEBIBYTE)
    """Uploaded bytes not yet published, of one connection: at least as many as the largest body has, see
    messageBytes."""

    selector_bytes: int = Field(default=262_144, ge=256, le=MEBIBYTE)
    """One selector's text. By default 32,767 texts of four letters fit, which are as many as one may have. In EMS:
    `selector_logical_operator_limit`, which counts operators."""

    temporaries: int = Field(default=1_024, ge=0, le=1_000_000)
    """Temporary destinations of one connection."""

    leases: int = Field(default=1_000, ge=1, le=100_000)
    """Unary Receive calls whose messages are not acknowledged yet, of all clients together."""


class BrokerStore(Model):
    """A label that destinations name, with what it promises and how much it may hold."""

    name: StoreName
    """The store's name. `$sys.failsafe` and `$sys.nonfailsafe` exist anyway and may be given a quota here."""

    mode: StoreMode | None = None
    """`sync` (default): a message is confirmed when it is on disk. `async`: when it is accepted; it reaches the disk
    shortly after. The two system stores keep theirs, sync and async."""

    quota_bytes: Size = 0
    """The most bytes that its destinations may hold together; 0: no quota."""

    @model_validator(mode="after")
    def _system_stores_keep_their_mode(self) -> Self:
        check_mode(self.name, self.mode)
        return self

    @property
    def effective_mode(self) -> str:
        """What holds: as written, or a system store's own."""
        return effective_mode(self.name, self.mode)


class LogSettings(Model):
    """How the broker keeps messages. Sizes of memory are budgets of the engine, not of the whole process."""

    segment_bytes: int = Field(default=64 * MEBIBYTE, ge=MEBIBYTE, le=1024 * MEBIBYTE)
    """The size of one file of the log, which is filled ahead. In EMS: `file_minimum` of a store."""

    cache_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE, le=1024 * 1024 * MEBIBYTE)
    """Memory for the payloads of stored messages; what does not fit is read from disk when it is delivered. In EMS:
    `max_msg_memory`, together with volatileBytes; `msg_swapping` is always on."""

    volatile_bytes: int = Field(default=256 * MEBIBYTE, ge=MEBIBYTE, le=1024 * 1024 * MEBIBYTE)
    """Memory for non-persistent messages; what does not fit goes to a spill file. In EMS: `max_msg_memory`, together
    with cacheBytes."""


class SnapshotSettings(Model):
    """What the broker keeps for snapshots until they are taken, see docs/audits/snapshots.md.

    It never holds up a send: what is over goes, and the snapshot says what is missing.
    """

    kept_bytes: int | None = Field(default=None, ge=MEBIBYTE, le=1024 * 1024 * MEBIBYTE)
    """The most bytes of disk for it. Default: a tenth of the data folder's volume."""

    kept_age_ms: int = Field(default=604_800_000, ge=60_000, le=31_536_000_000)
    """How old it may get. Default: 7 days."""


class BrokerSettings(Model):
    """What can be said of a broker wherever it runs."""

    RULES = (
        Rule(
            "self.limits.messageBytes * 2 <= self.log.segmentBytes",
            _MESSAGE_TOO_LARGE,
            ".limits.messageBytes",
        ),
    )

    limits: BrokerLimits = section(BrokerLimits)
    """What the broker accepts."""

    log: LogSettings = section(LogSettings)
    """How the broker keeps messages."""

    snapshots: SnapshotSettings = section(SnapshotSettings)
    """What the broker keeps for snapshots until they are taken."""

    drain_ms: int = Field(default=10_000, ge=0, le=600_000)
    """How long a stopping broker waits for its clients to leave."""

    flow_control: bool = False
    """Whether senders wait where a destination's flowControlBytes says so (EMS-DEST-A56). In EMS: `flow_control`."""

    slow_consumer_ms: int = Field(default=30_000, ge=100, le=3_600_000)
    """How long a client may leave unread what it asked for before it is cut off."""

    dynamic_idle_ms: int = Field(default=600_000, ge=1_000, le=604_800_000)
    """How long a dynamic destination stays at most that nobody uses: no client has it open, a queue is empty, a topic
    has no subscriber. It goes after half of that at the earliest, and what is known of its senders' numbers goes with
    it: this has to be longer than clients take to come back, or what they were in doubt about can arrive twice. In EMS:
    not to be set, such a destination is removed at some time (EMS-DEST-A04)."""

    metrics_destinations: int = Field(default=100, ge=0, le=10_000)
    """How many destinations of each kind the metrics list one by one (those holding the most); the rest are summed
    up."""

    @model_validator(mode="after")
    def _a_message_fits_a_segment(self) -> Self:
        if self.limits.message_bytes * 2 > self.log.segment_bytes:
            raise PydanticCustomError("message_bytes", "{fault}", {"fault": _MESSAGE_TOO_LARGE})
        return self


class BrokerSpec(BrokerSettings):
    """The broker's settings; a flag of the command line comes before each."""

    name: BrokerName | None = None
    """The broker's name, as in message ids; `metadata.name` when absent. In EMS: `server`."""

    listeners: Listeners = section(Listeners)
    """Where the broker listens. Beyond loopback only with TLS and users, see docs/security.md."""

    stores: list[BrokerStore] = Field(default_factory=list, max_length=STORES_MAX)
    """The stores that destinations may name, besides `$sys.failsafe` and `$sys.nonfailsafe`. In EMS: `stores.conf`."""

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
    """The settings of the broker that reads the folder; at most one of them. They take effect at start, stores at once.

    An apply says which of them wait for the next start. Where a field stands for a parameter of EMS's `tibemsd.conf` it
    names that; the others have none there.
    """

    PLURAL: ClassVar[str] = "brokers"

    kind: Literal["Broker"] = "Broker"
    """`Broker`."""

    spec: BrokerSpec = Field(default_factory=BrokerSpec)
    """The broker's settings."""

    @property
    def broker_name(self) -> str:
        """The name in message ids."""
        return self.spec.name or self.metadata.name.replace(".", "-")
