from sterna._proto.sterna.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    MALFORMED_FRAME: _ClassVar[ErrorCode]
    UNSUPPORTED_VERSION: _ClassVar[ErrorCode]
    PROTOCOL_VIOLATION: _ClassVar[ErrorCode]
    INVALID_NAME: _ClassVar[ErrorCode]
    INVALID_SELECTOR: _ClassVar[ErrorCode]
    INVALID_MESSAGE: _ClassVar[ErrorCode]
    INVALID_ARGUMENT: _ClassVar[ErrorCode]
    LIMIT_EXCEEDED: _ClassVar[ErrorCode]
    NOT_ALLOWED: _ClassVar[ErrorCode]
    UNAUTHENTICATED: _ClassVar[ErrorCode]
    PERMISSION_DENIED: _ClassVar[ErrorCode]
    NO_SUCH_DESTINATION: _ClassVar[ErrorCode]
    NO_SUCH_SUBSCRIPTION: _ClassVar[ErrorCode]
    NO_SUCH_TRANSACTION: _ClassVar[ErrorCode]
    ALREADY_EXISTS: _ClassVar[ErrorCode]
    IN_USE: _ClassVar[ErrorCode]
    CLIENT_ID_IN_USE: _ClassVar[ErrorCode]
    MOVED: _ClassVar[ErrorCode]
    UNKNOWN_PRODUCER: _ClassVar[ErrorCode]
    CLOSED: _ClassVar[ErrorCode]
    CONFLICT: _ClassVar[ErrorCode]
    OWNED: _ClassVar[ErrorCode]
    SPANS_HOMES: _ClassVar[ErrorCode]
    DESTINATION_FULL: _ClassVar[ErrorCode]
    STORE_FULL: _ClassVar[ErrorCode]
    STORE_FAILED: _ClassVar[ErrorCode]
    MESSAGE_DAMAGED: _ClassVar[ErrorCode]
    TRANSACTION_ROLLED_BACK: _ClassVar[ErrorCode]
    SHUTTING_DOWN: _ClassVar[ErrorCode]
    UNAVAILABLE: _ClassVar[ErrorCode]
    SLOW_CONSUMER: _ClassVar[ErrorCode]
    IDLE: _ClassVar[ErrorCode]
    NO_RESPONDERS: _ClassVar[ErrorCode]
    INTERNAL: _ClassVar[ErrorCode]

class AcknowledgeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTO: _ClassVar[AcknowledgeMode]
    CLIENT: _ClassVar[AcknowledgeMode]
    DUPS_OK: _ClassVar[AcknowledgeMode]
    NONE: _ClassVar[AcknowledgeMode]
    EXPLICIT_CLIENT: _ClassVar[AcknowledgeMode]
    EXPLICIT_CLIENT_DUPS_OK: _ClassVar[AcknowledgeMode]
    INDIVIDUAL: _ClassVar[AcknowledgeMode]
    TRANSACTED: _ClassVar[AcknowledgeMode]

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTED: _ClassVar[Durability]
    DURABLE: _ClassVar[Durability]
    REPLICATED: _ClassVar[Durability]
ERROR_CODE_UNSPECIFIED: ErrorCode
MALFORMED_FRAME: ErrorCode
UNSUPPORTED_VERSION: ErrorCode
PROTOCOL_VIOLATION: ErrorCode
INVALID_NAME: ErrorCode
INVALID_SELECTOR: ErrorCode
INVALID_MESSAGE: ErrorCode
INVALID_ARGUMENT: ErrorCode
LIMIT_EXCEEDED: ErrorCode
NOT_ALLOWED: ErrorCode
UNAUTHENTICATED: ErrorCode
PERMISSION_DENIED: ErrorCode
NO_SUCH_DESTINATION: ErrorCode
NO_SUCH_SUBSCRIPTION: ErrorCode
NO_SUCH_TRANSACTION: ErrorCode
ALREADY_EXISTS: ErrorCode
IN_USE: ErrorCode
CLIENT_ID_IN_USE: ErrorCode
MOVED: ErrorCode
UNKNOWN_PRODUCER: ErrorCode
CLOSED: ErrorCode
CONFLICT: ErrorCode
OWNED: ErrorCode
SPANS_HOMES: ErrorCode
DESTINATION_FULL: ErrorCode
STORE_FULL: ErrorCode
STORE_FAILED: ErrorCode
MESSAGE_DAMAGED: ErrorCode
TRANSACTION_ROLLED_BACK: ErrorCode
SHUTTING_DOWN: ErrorCode
UNAVAILABLE: ErrorCode
SLOW_CONSUMER: ErrorCode
IDLE: ErrorCode
NO_RESPONDERS: ErrorCode
INTERNAL: ErrorCode
AUTO: AcknowledgeMode
CLIENT: AcknowledgeMode
DUPS_OK: AcknowledgeMode
NONE: AcknowledgeMode
EXPLICIT_CLIENT: AcknowledgeMode
EXPLICIT_CLIENT_DUPS_OK: AcknowledgeMode
INDIVIDUAL: AcknowledgeMode
TRANSACTED: AcknowledgeMode
ACCEPTED: Durability
DURABLE: Durability
REPLICATED: Durability

class ClientBatch(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[ClientFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[ClientFrame, _Mapping]]] = ...) -> None: ...

class ServerBatch(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[ServerFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[ServerFrame, _Mapping]]] = ...) -> None: ...

class ClientFrame(_message.Message):
    __slots__ = ("session", "request", "publish", "acknowledge", "credit", "release", "hello", "goodbye", "heartbeat", "open_session", "close_session", "open_producer", "close_producer", "open_consumer", "close_consumer", "recover", "transact", "unsubscribe", "lookup", "create_temporary", "delete_temporary", "upload", "start", "handed_out")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    OPEN_SESSION_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SESSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    OPEN_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    TRANSACT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    CREATE_TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    DELETE_TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    HANDED_OUT_FIELD_NUMBER: _ClassVar[int]
    session: int
    request: int
    publish: Publish
    acknowledge: Ack
    credit: Credit
    release: Release
    hello: Hello
    goodbye: Goodbye
    heartbeat: Heartbeat
    open_session: OpenSession
    close_session: CloseSession
    open_producer: OpenProducer
    close_producer: CloseProducer
    open_consumer: OpenConsumer
    close_consumer: CloseConsumer
    recover: Recover
    transact: Transact
    unsubscribe: Unsubscribe
    lookup: Lookup
    create_temporary: CreateTemporary
    delete_temporary: DeleteTemporary
    upload: Upload
    start: Start
    handed_out: HandedOut
    def __init__(self, session: _Optional[int] = ..., request: _Optional[int] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., acknowledge: _Optional[_Union[Ack, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., open_session: _Optional[_Union[OpenSession, _Mapping]] = ..., close_session: _Optional[_Union[CloseSession, _Mapping]] = ..., open_producer: _Optional[_Union[OpenProducer, _Mapping]] = ..., close_producer: _Optional[_Union[CloseProducer, _Mapping]] = ..., open_consumer: _Optional[_Union[OpenConsumer, _Mapping]] = ..., close_consumer: _Optional[_Union[CloseConsumer, _Mapping]] = ..., recover: _Optional[_Union[Recover, _Mapping]] = ..., transact: _Optional[_Union[Transact, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., lookup: _Optional[_Union[Lookup, _Mapping]] = ..., create_temporary: _Optional[_Union[CreateTemporary, _Mapping]] = ..., delete_temporary: _Optional[_Union[DeleteTemporary, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., handed_out: _Optional[_Union[HandedOut, _Mapping]] = ...) -> None: ...

class ServerFrame(_message.Message):
    __slots__ = ("session", "deliver", "confirm", "producer_credit", "rejected", "welcome", "reply", "go_away", "heartbeat", "consumer_closed", "producer_closed", "session_closed", "drained", "error", "transaction_ended")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    DELIVER_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_CREDIT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    SESSION_CLOSED_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ENDED_FIELD_NUMBER: _ClassVar[int]
    session: int
    deliver: Deliver
    confirm: Confirm
    producer_credit: ProducerCredit
    rejected: Rejected
    welcome: Welcome
    reply: Reply
    go_away: GoAway
    heartbeat: Heartbeat
    consumer_closed: ConsumerClosed
    producer_closed: ProducerClosed
    session_closed: SessionClosed
    drained: Drained
    error: Error
    transaction_ended: TransactionEnded
    def __init__(self, session: _Optional[int] = ..., deliver: _Optional[_Union[Deliver, _Mapping]] = ..., confirm: _Optional[_Union[Confirm, _Mapping]] = ..., producer_credit: _Optional[_Union[ProducerCredit, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., consumer_closed: _Optional[_Union[ConsumerClosed, _Mapping]] = ..., producer_closed: _Optional[_Union[ProducerClosed, _Mapping]] = ..., session_closed: _Optional[_Union[SessionClosed, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., transaction_ended: _Optional[_Union[TransactionEnded, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "client_id", "product", "host", "connection_token", "heartbeat_ms", "credentials")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    client_id: str
    product: str
    host: str
    connection_token: bytes
    heartbeat_ms: int
    credentials: Credentials
    def __init__(self, protocol_version: _Optional[int] = ..., client_id: _Optional[str] = ..., product: _Optional[str] = ..., host: _Optional[str] = ..., connection_token: _Optional[bytes] = ..., heartbeat_ms: _Optional[int] = ..., credentials: _Optional[_Union[Credentials, _Mapping]] = ...) -> None: ...

class Credentials(_message.Message):
    __slots__ = ("password", "token")
    class Password(_message.Message):
        __slots__ = ("user", "password")
        USER_FIELD_NUMBER: _ClassVar[int]
        PASSWORD_FIELD_NUMBER: _ClassVar[int]
        user: str
        password: str
        def __init__(self, user: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    password: Credentials.Password
    token: str
    def __init__(self, password: _Optional[_Union[Credentials.Password, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "broker", "store_id", "epoch", "connection_token", "heartbeat_ms", "limits", "client_id", "product", "time_ms", "cluster", "start_id")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    broker: str
    store_id: str
    epoch: int
    connection_token: bytes
    heartbeat_ms: int
    limits: Limits
    client_id: str
    product: str
    time_ms: int
    cluster: str
    start_id: int
    def __init__(self, protocol_version: _Optional[int] = ..., broker: _Optional[str] = ..., store_id: _Optional[str] = ..., epoch: _Optional[int] = ..., connection_token: _Optional[bytes] = ..., heartbeat_ms: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., client_id: _Optional[str] = ..., product: _Optional[str] = ..., time_ms: _Optional[int] = ..., cluster: _Optional[str] = ..., start_id: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("frame_bytes", "message_bytes", "sessions", "producers", "consumers", "inflight_bytes", "unacknowledged_messages", "transaction_messages", "upload_bytes", "selector_bytes", "temporaries", "transactions", "transaction_ms")
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPORARIES_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_MS_FIELD_NUMBER: _ClassVar[int]
    frame_bytes: int
    message_bytes: int
    sessions: int
    producers: int
    consumers: int
    inflight_bytes: int
    unacknowledged_messages: int
    transaction_messages: int
    upload_bytes: int
    selector_bytes: int
    temporaries: int
    transactions: int
    transaction_ms: int
    def __init__(self, frame_bytes: _Optional[int] = ..., message_bytes: _Optional[int] = ..., sessions: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., inflight_bytes: _Optional[int] = ..., unacknowledged_messages: _Optional[int] = ..., transaction_messages: _Optional[int] = ..., upload_bytes: _Optional[int] = ..., selector_bytes: _Optional[int] = ..., temporaries: _Optional[int] = ..., transactions: _Optional[int] = ..., transaction_ms: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("seen",)
    SEEN_FIELD_NUMBER: _ClassVar[int]
    seen: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, seen: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("destination", "addresses", "reason", "grace_ms")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    addresses: _containers.RepeatedScalarFieldContainer[str]
    reason: Error
    grace_ms: int
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., addresses: _Optional[_Iterable[str]] = ..., reason: _Optional[_Union[Error, _Mapping]] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "subject", "message", "remedy", "retryable", "addresses", "offset")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    subject: str
    message: str
    remedy: str
    retryable: bool
    addresses: _containers.RepeatedScalarFieldContainer[str]
    offset: int
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., subject: _Optional[str] = ..., message: _Optional[str] = ..., remedy: _Optional[str] = ..., retryable: bool = ..., addresses: _Optional[_Iterable[str]] = ..., offset: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("request", "error", "done", "session_opened", "producer_opened", "consumer_opened", "looked_up", "temporary_created", "transacted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SESSION_OPENED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_OPENED_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OPENED_FIELD_NUMBER: _ClassVar[int]
    LOOKED_UP_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_CREATED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTED_FIELD_NUMBER: _ClassVar[int]
    request: int
    error: Error
    done: Done
    session_opened: SessionOpened
    producer_opened: ProducerOpened
    consumer_opened: ConsumerOpened
    looked_up: LookedUp
    temporary_created: TemporaryCreated
    transacted: Transacted
    def __init__(self, request: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., session_opened: _Optional[_Union[SessionOpened, _Mapping]] = ..., producer_opened: _Optional[_Union[ProducerOpened, _Mapping]] = ..., consumer_opened: _Optional[_Union[ConsumerOpened, _Mapping]] = ..., looked_up: _Optional[_Union[LookedUp, _Mapping]] = ..., temporary_created: _Optional[_Union[TemporaryCreated, _Mapping]] = ..., transacted: _Optional[_Union[Transacted, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("acknowledge_mode", "stopped")
    ACKNOWLEDGE_MODE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    acknowledge_mode: AcknowledgeMode
    stopped: bool
    def __init__(self, acknowledge_mode: _Optional[_Union[AcknowledgeMode, str]] = ..., stopped: bool = ...) -> None: ...

class SessionOpened(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    def __init__(self, stop: bool = ...) -> None: ...

class CloseSession(_message.Message):
    __slots__ = ("seen",)
    SEEN_FIELD_NUMBER: _ClassVar[int]
    seen: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, seen: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class SessionClosed(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: Error
    def __init__(self, reason: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Recover(_message.Message):
    __slots__ = ("seen",)
    SEEN_FIELD_NUMBER: _ClassVar[int]
    seen: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, seen: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class SeenSet(_message.Message):
    __slots__ = ("source", "ranges")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    source: int
    ranges: _containers.RepeatedCompositeFieldContainer[SequenceRange]
    def __init__(self, source: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SequenceRange, _Mapping]]] = ...) -> None: ...

class SequenceRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("producer", "destination", "incarnation", "first_unconfirmed", "token", "left_out", "name", "unknown_is_new", "settled_below", "uploads")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNCONFIRMED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_IS_NEW_FIELD_NUMBER: _ClassVar[int]
    SETTLED_BELOW_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    producer: int
    destination: _message_pb2.Destination
    incarnation: int
    first_unconfirmed: int
    token: bytes
    left_out: _containers.RepeatedCompositeFieldContainer[SequenceRange]
    name: str
    unknown_is_new: bool
    settled_below: int
    uploads: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer: _Optional[int] = ..., destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., incarnation: _Optional[int] = ..., first_unconfirmed: _Optional[int] = ..., token: _Optional[bytes] = ..., left_out: _Optional[_Iterable[_Union[SequenceRange, _Mapping]]] = ..., name: _Optional[str] = ..., unknown_is_new: bool = ..., settled_below: _Optional[int] = ..., uploads: _Optional[_Iterable[int]] = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ("incarnation", "last_sequence", "destination_id", "generation", "credit", "token", "message_id_prefix", "uploads")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    last_sequence: int
    destination_id: int
    generation: int
    credit: ProducerCredit
    token: bytes
    message_id_prefix: str
    uploads: _containers.RepeatedCompositeFieldContainer[PartialUpload]
    def __init__(self, incarnation: _Optional[int] = ..., last_sequence: _Optional[int] = ..., destination_id: _Optional[int] = ..., generation: _Optional[int] = ..., credit: _Optional[_Union[ProducerCredit, _Mapping]] = ..., token: _Optional[bytes] = ..., message_id_prefix: _Optional[str] = ..., uploads: _Optional[_Iterable[_Union[PartialUpload, _Mapping]]] = ...) -> None: ...

class PartialUpload(_message.Message):
    __slots__ = ("upload_id", "bytes", "crc32")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    upload_id: int
    bytes: int
    crc32: int
    def __init__(self, upload_id: _Optional[int] = ..., bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: int
    def __init__(self, producer: _Optional[int] = ...) -> None: ...

class ProducerClosed(_message.Message):
    __slots__ = ("producer", "reason")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    producer: int
    reason: Error
    def __init__(self, producer: _Optional[int] = ..., reason: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ProducerCredit(_message.Message):
    __slots__ = ("producer", "sequence_limit", "bytes_limit")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    producer: int
    sequence_limit: int
    bytes_limit: int
    def __init__(self, producer: _Optional[int] = ..., sequence_limit: _Optional[int] = ..., bytes_limit: _Optional[int] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("producer", "first_sequence", "messages", "destination", "transaction")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    producer: int
    first_sequence: int
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    destination: _message_pb2.Destination
    transaction: int
    def __init__(self, producer: _Optional[int] = ..., first_sequence: _Optional[int] = ..., messages: _Optional[_Iterable[bytes]] = ..., destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., transaction: _Optional[int] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("confirmed",)
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    confirmed: _containers.RepeatedCompositeFieldContainer[Confirmed]
    def __init__(self, confirmed: _Optional[_Iterable[_Union[Confirmed, _Mapping]]] = ...) -> None: ...

class Confirmed(_message.Message):
    __slots__ = ("producer", "first", "last", "durability", "arrived_ms")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_MS_FIELD_NUMBER: _ClassVar[int]
    producer: int
    first: int
    last: int
    durability: Durability
    arrived_ms: int
    def __init__(self, producer: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., arrived_ms: _Optional[int] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("producer", "first", "last", "error")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    producer: int
    first: int
    last: int
    error: Error
    def __init__(self, producer: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("producer", "upload_id", "offset", "data", "body_bytes")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    producer: int
    upload_id: int
    offset: int
    data: bytes
    body_bytes: int
    def __init__(self, producer: _Optional[int] = ..., upload_id: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., body_bytes: _Optional[int] = ...) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("consumer", "destination", "selector", "no_local", "subscription", "browse", "credit")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    NO_LOCAL_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BROWSE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    destination: _message_pb2.Destination
    selector: str
    no_local: bool
    subscription: Subscription
    browse: bool
    credit: Credit
    def __init__(self, consumer: _Optional[int] = ..., destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., selector: _Optional[str] = ..., no_local: bool = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., browse: bool = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("name", "durable", "shared")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    name: str
    durable: bool
    shared: bool
    def __init__(self, name: _Optional[str] = ..., durable: bool = ..., shared: bool = ...) -> None: ...

class ConsumerOpened(_message.Message):
    __slots__ = ("consumer", "source", "destination_id", "generation", "prefetch", "epoch", "replaced")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    source: int
    destination_id: int
    generation: int
    prefetch: int
    epoch: int
    replaced: bool
    def __init__(self, consumer: _Optional[int] = ..., source: _Optional[int] = ..., destination_id: _Optional[int] = ..., generation: _Optional[int] = ..., prefetch: _Optional[int] = ..., epoch: _Optional[int] = ..., replaced: bool = ...) -> None: ...

class CloseConsumer(_message.Message):
    __slots__ = ("consumer", "seen")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    seen: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, consumer: _Optional[int] = ..., seen: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class ConsumerClosed(_message.Message):
    __slots__ = ("consumer", "reason")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    reason: Error
    def __init__(self, consumer: _Optional[int] = ..., reason: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("consumer", "message_limit", "bytes_limit", "drain")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    message_limit: int
    bytes_limit: int
    drain: bool
    def __init__(self, consumer: _Optional[int] = ..., message_limit: _Optional[int] = ..., bytes_limit: _Optional[int] = ..., drain: bool = ...) -> None: ...

class Drained(_message.Message):
    __slots__ = ("consumer", "message_limit")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    message_limit: int
    def __init__(self, consumer: _Optional[int] = ..., message_limit: _Optional[int] = ...) -> None: ...

class Deliver(_message.Message):
    __slots__ = ("consumer", "deliveries", "epoch", "time_ms")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    consumer: int
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    epoch: int
    time_ms: int
    def __init__(self, consumer: _Optional[int] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., epoch: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("sequence", "message", "delivery_count", "redelivered", "timestamp_ms", "expiration_ms", "delivery_time_ms", "message_id", "destination", "sender", "uploaded", "uploaded_bytes", "reason")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    message: bytes
    delivery_count: int
    redelivered: bool
    timestamp_ms: int
    expiration_ms: int
    delivery_time_ms: int
    message_id: str
    destination: _message_pb2.Destination
    sender: str
    uploaded: bytes
    uploaded_bytes: int
    reason: str
    def __init__(self, sequence: _Optional[int] = ..., message: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., redelivered: bool = ..., timestamp_ms: _Optional[int] = ..., expiration_ms: _Optional[int] = ..., delivery_time_ms: _Optional[int] = ..., message_id: _Optional[str] = ..., destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., sender: _Optional[str] = ..., uploaded: _Optional[bytes] = ..., uploaded_bytes: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("sets", "transaction")
    SETS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[AckSet]
    transaction: int
    def __init__(self, sets: _Optional[_Iterable[_Union[AckSet, _Mapping]]] = ..., transaction: _Optional[int] = ...) -> None: ...

class AckSet(_message.Message):
    __slots__ = ("source", "ranges", "epoch")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    source: int
    ranges: _containers.RepeatedCompositeFieldContainer[SequenceRange]
    epoch: int
    def __init__(self, source: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SequenceRange, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("sets", "seen", "delay_ms")
    SETS_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[AckSet]
    seen: bool
    delay_ms: int
    def __init__(self, sets: _Optional[_Iterable[_Union[AckSet, _Mapping]]] = ..., seen: bool = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Transact(_message.Message):
    __slots__ = ("transaction", "verb", "xid", "seen")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[Transact.Verb]
        COMMIT: _ClassVar[Transact.Verb]
        ROLLBACK: _ClassVar[Transact.Verb]
        PREPARE: _ClassVar[Transact.Verb]
        COMMIT_PREPARED: _ClassVar[Transact.Verb]
        ROLLBACK_PREPARED: _ClassVar[Transact.Verb]
    VERB_UNSPECIFIED: Transact.Verb
    COMMIT: Transact.Verb
    ROLLBACK: Transact.Verb
    PREPARE: Transact.Verb
    COMMIT_PREPARED: Transact.Verb
    ROLLBACK_PREPARED: Transact.Verb
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    transaction: int
    verb: Transact.Verb
    xid: Xid
    seen: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, transaction: _Optional[int] = ..., verb: _Optional[_Union[Transact.Verb, str]] = ..., xid: _Optional[_Union[Xid, _Mapping]] = ..., seen: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class HandedOut(_message.Message):
    __slots__ = ("transaction", "sets")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    transaction: int
    sets: _containers.RepeatedCompositeFieldContainer[SeenSet]
    def __init__(self, transaction: _Optional[int] = ..., sets: _Optional[_Iterable[_Union[SeenSet, _Mapping]]] = ...) -> None: ...

class TransactionEnded(_message.Message):
    __slots__ = ("transaction", "reason")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    transaction: int
    reason: Error
    def __init__(self, transaction: _Optional[int] = ..., reason: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Xid(_message.Message):
    __slots__ = ("format", "branch")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    format: int
    branch: bytes
    def __init__(self, format: _Optional[int] = ..., branch: _Optional[bytes] = ..., **kwargs) -> None: ...

class Transacted(_message.Message):
    __slots__ = ("transaction", "durability", "rolled_back", "read_only")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    transaction: int
    durability: Durability
    rolled_back: bool
    read_only: bool
    def __init__(self, transaction: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., rolled_back: bool = ..., read_only: bool = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("destination", "upload")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    upload: UploadKey
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., upload: _Optional[_Union[UploadKey, _Mapping]] = ...) -> None: ...

class UploadKey(_message.Message):
    __slots__ = ("producer", "upload_id")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    producer: int
    upload_id: int
    def __init__(self, producer: _Optional[int] = ..., upload_id: _Optional[int] = ...) -> None: ...

class LookedUp(_message.Message):
    __slots__ = ("destination_id", "generation", "is_static", "prefetch", "upload_bytes")
    DESTINATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IS_STATIC_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    destination_id: int
    generation: int
    is_static: bool
    prefetch: int
    upload_bytes: int
    def __init__(self, destination_id: _Optional[int] = ..., generation: _Optional[int] = ..., is_static: bool = ..., prefetch: _Optional[int] = ..., upload_bytes: _Optional[int] = ...) -> None: ...

class CreateTemporary(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: _message_pb2.DestinationKind
    def __init__(self, kind: _Optional[_Union[_message_pb2.DestinationKind, str]] = ...) -> None: ...

class TemporaryCreated(_message.Message):
    __slots__ = ("destination",)
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ...) -> None: ...

class DeleteTemporary(_message.Message):
    __slots__ = ("destination",)
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("destination", "message")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    message: _message_pb2.Message
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("message_id", "timestamp_ms", "delivery_time_ms", "durability")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    timestamp_ms: int
    delivery_time_ms: int
    durability: Durability
    def __init__(self, message_id: _Optional[str] = ..., timestamp_ms: _Optional[int] = ..., delivery_time_ms: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("destination", "subscription", "client_id", "selector", "max_messages", "wait_ms", "lease_ms", "no_acknowledge")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NO_ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    destination: _message_pb2.Destination
    subscription: Subscription
    client_id: str
    selector: str
    max_messages: int
    wait_ms: int
    lease_ms: int
    no_acknowledge: bool
    def __init__(self, destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., client_id: _Optional[str] = ..., selector: _Optional[str] = ..., max_messages: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., no_acknowledge: bool = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Received]
    def __init__(self, messages: _Optional[_Iterable[_Union[Received, _Mapping]]] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("receipt", "delivery", "message")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    receipt: str
    delivery: Delivery
    message: _message_pb2.Message
    def __init__(self, receipt: _Optional[str] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("expired",)
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    expired: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, expired: _Optional[_Iterable[str]] = ...) -> None: ...
