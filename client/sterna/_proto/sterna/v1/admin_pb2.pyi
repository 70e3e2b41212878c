from sterna._proto.sterna.v1 import message_pb2 as _message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as _messaging_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    STATIC: _ClassVar[Origin]
    DYNAMIC: _ClassVar[Origin]
    TEMPORARY: _ClassVar[Origin]
    SYSTEM: _ClassVar[Origin]
ORIGIN_UNSPECIFIED: Origin
STATIC: Origin
DYNAMIC: Origin
TEMPORARY: Origin
SYSTEM: Origin

class ListRequest(_message.Message):
    __slots__ = ("kind", "pattern", "page_size", "page_token", "temporaries", "system")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEMPORARIES_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    pattern: str
    page_size: int
    page_token: str
    temporaries: bool
    system: bool
    def __init__(self, kind: _Optional[str] = ..., pattern: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., temporaries: bool = ..., system: bool = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("resources", "next_page_token")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    next_page_token: str
    def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("kind", "name", "manifest", "origin", "owner", "generation", "effective", "statistics", "home")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    manifest: str
    origin: Origin
    owner: str
    generation: int
    effective: str
    statistics: DestinationStatistics
    home: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., manifest: _Optional[str] = ..., origin: _Optional[_Union[Origin, str]] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ..., effective: _Optional[str] = ..., statistics: _Optional[_Union[DestinationStatistics, _Mapping]] = ..., home: _Optional[str] = ...) -> None: ...

class DestinationStatistics(_message.Message):
    __slots__ = ("messages", "bytes", "delivered_messages", "delayed_messages", "producers", "consumers", "subscriptions", "published_total", "published_bytes_total", "delivered_total", "acknowledged_total", "redelivered_total", "expired_total", "discarded_total", "undelivered_total", "oldest_ms", "redelivery_delayed_messages", "flow_controlled_sessions", "durable_messages")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DELAYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_DELAYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FLOW_CONTROLLED_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    delivered_messages: int
    delayed_messages: int
    producers: int
    consumers: int
    subscriptions: int
    published_total: int
    published_bytes_total: int
    delivered_total: int
    acknowledged_total: int
    redelivered_total: int
    expired_total: int
    discarded_total: int
    undelivered_total: int
    oldest_ms: int
    redelivery_delayed_messages: int
    flow_controlled_sessions: int
    durable_messages: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ..., delivered_messages: _Optional[int] = ..., delayed_messages: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., subscriptions: _Optional[int] = ..., published_total: _Optional[int] = ..., published_bytes_total: _Optional[int] = ..., delivered_total: _Optional[int] = ..., acknowledged_total: _Optional[int] = ..., redelivered_total: _Optional[int] = ..., expired_total: _Optional[int] = ..., discarded_total: _Optional[int] = ..., undelivered_total: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., redelivery_delayed_messages: _Optional[int] = ..., flow_controlled_sessions: _Optional[int] = ..., durable_messages: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("manifests", "dry_run", "source", "create_only", "files")
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    manifests: str
    dry_run: bool
    source: str
    create_only: bool
    files: _containers.RepeatedCompositeFieldContainer[ManifestFile]
    def __init__(self, manifests: _Optional[str] = ..., dry_run: bool = ..., source: _Optional[str] = ..., create_only: bool = ..., files: _Optional[_Iterable[_Union[ManifestFile, _Mapping]]] = ...) -> None: ...

class ManifestFile(_message.Message):
    __slots__ = ("source", "manifests")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    source: str
    manifests: str
    def __init__(self, source: _Optional[str] = ..., manifests: _Optional[str] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("applied",)
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    applied: _containers.RepeatedCompositeFieldContainer[Applied]
    def __init__(self, applied: _Optional[_Iterable[_Union[Applied, _Mapping]]] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("kind", "name", "change", "changes", "error", "warnings")
    class Change(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNCHANGED: _ClassVar[Applied.Change]
        CREATED: _ClassVar[Applied.Change]
        CONFIGURED: _ClassVar[Applied.Change]
        REFUSED: _ClassVar[Applied.Change]
    UNCHANGED: Applied.Change
    CREATED: Applied.Change
    CONFIGURED: Applied.Change
    REFUSED: Applied.Change
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    change: Applied.Change
    changes: _containers.RepeatedScalarFieldContainer[str]
    error: _messaging_pb2.Error
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., change: _Optional[_Union[Applied.Change, str]] = ..., changes: _Optional[_Iterable[str]] = ..., error: _Optional[_Union[_messaging_pb2.Error, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("kind", "name", "with_messages")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WITH_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    with_messages: bool
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., with_messages: bool = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("queue", "durable", "topic")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    queue: str
    durable: DurableName
    topic: str
    def __init__(self, queue: _Optional[str] = ..., durable: _Optional[_Union[DurableName, _Mapping]] = ..., topic: _Optional[str] = ...) -> None: ...

class DurableName(_message.Message):
    __slots__ = ("client_id", "name")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    name: str
    def __init__(self, client_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class BrowseRequest(_message.Message):
    __slots__ = ("queue", "durable", "selector", "max_messages", "after_sequence", "body_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    durable: DurableName
    selector: str
    max_messages: int
    after_sequence: int
    body_bytes: int
    def __init__(self, queue: _Optional[str] = ..., durable: _Optional[_Union[DurableName, _Mapping]] = ..., selector: _Optional[str] = ..., max_messages: _Optional[int] = ..., after_sequence: _Optional[int] = ..., body_bytes: _Optional[int] = ...) -> None: ...

class BrowseResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[_messaging_pb2.Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[_messaging_pb2.Delivery, _Mapping]]] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Statistics(_message.Message):
    __slots__ = ("broker", "version", "started_ms", "epoch", "store_id", "state", "log", "stores", "connections", "sessions", "producers", "consumers", "queues", "topics", "subscriptions", "messages", "bytes", "published_total", "delivered_total", "acknowledged_total", "resident_bytes", "recovery", "uploaded_bytes_total", "uploads_resumed_total", "uploads_kept_bytes")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_RESUMED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_KEPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    broker: str
    version: str
    started_ms: int
    epoch: int
    store_id: str
    state: str
    log: LogStatistics
    stores: _containers.RepeatedCompositeFieldContainer[StoreStatistics]
    connections: int
    sessions: int
    producers: int
    consumers: int
    queues: int
    topics: int
    subscriptions: int
    messages: int
    bytes: int
    published_total: int
    delivered_total: int
    acknowledged_total: int
    resident_bytes: int
    recovery: Recovery
    uploaded_bytes_total: int
    uploads_resumed_total: int
    uploads_kept_bytes: int
    def __init__(self, broker: _Optional[str] = ..., version: _Optional[str] = ..., started_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., store_id: _Optional[str] = ..., state: _Optional[str] = ..., log: _Optional[_Union[LogStatistics, _Mapping]] = ..., stores: _Optional[_Iterable[_Union[StoreStatistics, _Mapping]]] = ..., connections: _Optional[int] = ..., sessions: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., queues: _Optional[int] = ..., topics: _Optional[int] = ..., subscriptions: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., published_total: _Optional[int] = ..., delivered_total: _Optional[int] = ..., acknowledged_total: _Optional[int] = ..., resident_bytes: _Optional[int] = ..., recovery: _Optional[_Union[Recovery, _Mapping]] = ..., uploaded_bytes_total: _Optional[int] = ..., uploads_resumed_total: _Optional[int] = ..., uploads_kept_bytes: _Optional[int] = ...) -> None: ...

class LogStatistics(_message.Message):
    __slots__ = ("start_position", "end_position", "durable_position", "segments", "disk_bytes", "free_bytes", "commits_total", "commit_records_total", "rolling_hash")
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    DURABLE_POSITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_RECORDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ROLLING_HASH_FIELD_NUMBER: _ClassVar[int]
    start_position: int
    end_position: int
    durable_position: int
    segments: int
    disk_bytes: int
    free_bytes: int
    commits_total: int
    commit_records_total: int
    rolling_hash: str
    def __init__(self, start_position: _Optional[int] = ..., end_position: _Optional[int] = ..., durable_position: _Optional[int] = ..., segments: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., commits_total: _Optional[int] = ..., commit_records_total: _Optional[int] = ..., rolling_hash: _Optional[str] = ...) -> None: ...

class StoreStatistics(_message.Message):
    __slots__ = ("name", "mode", "messages", "bytes", "quota_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    mode: str
    messages: int
    bytes: int
    quota_bytes: int
    def __init__(self, name: _Optional[str] = ..., mode: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., quota_bytes: _Optional[int] = ...) -> None: ...

class Recovery(_message.Message):
    __slots__ = ("segments", "records", "messages", "torn_bytes", "dropped_records", "duration_ms")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TORN_BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    segments: int
    records: int
    messages: int
    torn_bytes: int
    dropped_records: int
    duration_ms: int
    def __init__(self, segments: _Optional[int] = ..., records: _Optional[int] = ..., messages: _Optional[int] = ..., torn_bytes: _Optional[int] = ..., dropped_records: _Optional[int] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class ListConnectionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListConnectionsResponse(_message.Message):
    __slots__ = ("connections",)
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    connections: _containers.RepeatedCompositeFieldContainer[Connection]
    def __init__(self, connections: _Optional[_Iterable[_Union[Connection, _Mapping]]] = ...) -> None: ...

class Connection(_message.Message):
    __slots__ = ("id", "client_id", "user", "product", "host", "peer", "connected_ms", "streams", "sessions", "producers", "consumers", "unacknowledged_messages", "published_total", "delivered_total", "uncommitted_messages", "uncommitted_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_MS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    client_id: str
    user: str
    product: str
    host: str
    peer: str
    connected_ms: int
    streams: int
    sessions: int
    producers: int
    consumers: int
    unacknowledged_messages: int
    published_total: int
    delivered_total: int
    uncommitted_messages: int
    uncommitted_bytes: int
    def __init__(self, id: _Optional[int] = ..., client_id: _Optional[str] = ..., user: _Optional[str] = ..., product: _Optional[str] = ..., host: _Optional[str] = ..., peer: _Optional[str] = ..., connected_ms: _Optional[int] = ..., streams: _Optional[int] = ..., sessions: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., unacknowledged_messages: _Optional[int] = ..., published_total: _Optional[int] = ..., delivered_total: _Optional[int] = ..., uncommitted_messages: _Optional[int] = ..., uncommitted_bytes: _Optional[int] = ...) -> None: ...

class CloseConnectionRequest(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: int
    reason: str
    def __init__(self, id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class CloseConnectionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BeginCutRequest(_message.Message):
    __slots__ = ("wait_ms",)
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    wait_ms: int
    def __init__(self, wait_ms: _Optional[int] = ...) -> None: ...

class BeginCutResponse(_message.Message):
    __slots__ = ("number", "cut")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    number: int
    cut: Cut
    def __init__(self, number: _Optional[int] = ..., cut: _Optional[_Union[Cut, _Mapping]] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("cluster", "broker", "store_id", "number", "epoch", "position", "previous_position", "time_ms", "schema", "previous_manifest", "events", "gaps", "rows", "bytes")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_POSITION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_MANIFEST_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker: str
    store_id: str
    number: int
    epoch: int
    position: int
    previous_position: int
    time_ms: int
    schema: int
    previous_manifest: bytes
    events: _containers.RepeatedCompositeFieldContainer[CutRange]
    gaps: _containers.RepeatedCompositeFieldContainer[CutGap]
    rows: int
    bytes: int
    def __init__(self, cluster: _Optional[str] = ..., broker: _Optional[str] = ..., store_id: _Optional[str] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., previous_position: _Optional[int] = ..., time_ms: _Optional[int] = ..., schema: _Optional[int] = ..., previous_manifest: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[CutRange, _Mapping]]] = ..., gaps: _Optional[_Iterable[_Union[CutGap, _Mapping]]] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class CutRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class CutGap(_message.Message):
    __slots__ = ("range", "reason")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    range: CutRange
    reason: str
    def __init__(self, range: _Optional[_Union[CutRange, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReadCutRequest(_message.Message):
    __slots__ = ("store_id", "number", "position")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    number: int
    position: int
    def __init__(self, store_id: _Optional[str] = ..., number: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class ReadCutResponse(_message.Message):
    __slots__ = ("held", "piece", "configuration", "end")
    HELD_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    held: CutHeld
    piece: CutPiece
    configuration: CutConfiguration
    end: CutEnd
    def __init__(self, held: _Optional[_Union[CutHeld, _Mapping]] = ..., piece: _Optional[_Union[CutPiece, _Mapping]] = ..., configuration: _Optional[_Union[CutConfiguration, _Mapping]] = ..., end: _Optional[_Union[CutEnd, _Mapping]] = ...) -> None: ...

class CutHeld(_message.Message):
    __slots__ = ("hold", "cut")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    hold: int
    cut: Cut
    def __init__(self, hold: _Optional[int] = ..., cut: _Optional[_Union[Cut, _Mapping]] = ...) -> None: ...

class CutPiece(_message.Message):
    __slots__ = ("folder", "table", "rows", "data", "goes_on")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    folder: str
    table: str
    rows: int
    data: bytes
    goes_on: bool
    def __init__(self, folder: _Optional[str] = ..., table: _Optional[str] = ..., rows: _Optional[int] = ..., data: _Optional[bytes] = ..., goes_on: bool = ...) -> None: ...

class CutConfiguration(_message.Message):
    __slots__ = ("manifests",)
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    manifests: _containers.RepeatedCompositeFieldContainer[CutManifest]
    def __init__(self, manifests: _Optional[_Iterable[_Union[CutManifest, _Mapping]]] = ...) -> None: ...

class CutManifest(_message.Message):
    __slots__ = ("kind", "name", "revision", "spec")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    revision: int
    spec: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., revision: _Optional[int] = ..., spec: _Optional[str] = ...) -> None: ...

class CutEnd(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class ConfirmCutRequest(_message.Message):
    __slots__ = ("hold", "number", "manifest")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    hold: int
    number: int
    manifest: bytes
    def __init__(self, hold: _Optional[int] = ..., number: _Optional[int] = ..., manifest: _Optional[bytes] = ...) -> None: ...

class ConfirmCutResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
