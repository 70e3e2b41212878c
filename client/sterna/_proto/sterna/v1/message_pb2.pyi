from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliveryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERSISTENT: _ClassVar[DeliveryMode]
    NON_PERSISTENT: _ClassVar[DeliveryMode]
    RELIABLE: _ClassVar[DeliveryMode]

class DestinationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESTINATION_KIND_UNSPECIFIED: _ClassVar[DestinationKind]
    QUEUE: _ClassVar[DestinationKind]
    TOPIC: _ClassVar[DestinationKind]

class Null(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NULL: _ClassVar[Null]
PERSISTENT: DeliveryMode
NON_PERSISTENT: DeliveryMode
RELIABLE: DeliveryMode
DESTINATION_KIND_UNSPECIFIED: DestinationKind
QUEUE: DestinationKind
TOPIC: DestinationKind
NULL: Null

class Destination(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: DestinationKind
    name: str
    def __init__(self, kind: _Optional[_Union[DestinationKind, str]] = ..., name: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("delivery_mode", "priority", "time_to_live_ms", "delivery_delay_ms", "correlation_id", "reply_to", "type", "properties", "text", "bytes", "map", "stream", "object", "uploaded", "foreign", "encoding", "compression")
    DELIVERY_MODE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_LIVE_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    REPLY_TO_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    delivery_mode: DeliveryMode
    priority: int
    time_to_live_ms: int
    delivery_delay_ms: int
    correlation_id: str
    reply_to: Destination
    type: str
    properties: _containers.RepeatedCompositeFieldContainer[Property]
    text: str
    bytes: bytes
    map: MapBody
    stream: StreamBody
    object: ObjectBody
    uploaded: UploadedBody
    foreign: ForeignBody
    encoding: str
    compression: str
    def __init__(self, delivery_mode: _Optional[_Union[DeliveryMode, str]] = ..., priority: _Optional[int] = ..., time_to_live_ms: _Optional[int] = ..., delivery_delay_ms: _Optional[int] = ..., correlation_id: _Optional[str] = ..., reply_to: _Optional[_Union[Destination, _Mapping]] = ..., type: _Optional[str] = ..., properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., text: _Optional[str] = ..., bytes: _Optional[bytes] = ..., map: _Optional[_Union[MapBody, _Mapping]] = ..., stream: _Optional[_Union[StreamBody, _Mapping]] = ..., object: _Optional[_Union[ObjectBody, _Mapping]] = ..., uploaded: _Optional[_Union[UploadedBody, _Mapping]] = ..., foreign: _Optional[_Union[ForeignBody, _Mapping]] = ..., encoding: _Optional[str] = ..., compression: _Optional[str] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("bool_value", "byte_value", "short_value", "int_value", "long_value", "float_value", "double_value", "string_value", "char_value", "bytes_value", "null_value", "map_value", "stream_value", "array_value")
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    BYTE_VALUE_FIELD_NUMBER: _ClassVar[int]
    SHORT_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    LONG_VALUE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    CHAR_VALUE_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAP_VALUE_FIELD_NUMBER: _ClassVar[int]
    STREAM_VALUE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_VALUE_FIELD_NUMBER: _ClassVar[int]
    bool_value: bool
    byte_value: int
    short_value: int
    int_value: int
    long_value: int
    float_value: float
    double_value: float
    string_value: str
    char_value: int
    bytes_value: bytes
    null_value: Null
    map_value: MapBody
    stream_value: StreamBody
    array_value: Array
    def __init__(self, bool_value: bool = ..., byte_value: _Optional[int] = ..., short_value: _Optional[int] = ..., int_value: _Optional[int] = ..., long_value: _Optional[int] = ..., float_value: _Optional[float] = ..., double_value: _Optional[float] = ..., string_value: _Optional[str] = ..., char_value: _Optional[int] = ..., bytes_value: _Optional[bytes] = ..., null_value: _Optional[_Union[Null, str]] = ..., map_value: _Optional[_Union[MapBody, _Mapping]] = ..., stream_value: _Optional[_Union[StreamBody, _Mapping]] = ..., array_value: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Property(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Array(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class MapBody(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Property]
    def __init__(self, entries: _Optional[_Iterable[_Union[Property, _Mapping]]] = ...) -> None: ...

class StreamBody(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class ObjectBody(_message.Message):
    __slots__ = ("data", "content_type")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    content_type: str
    def __init__(self, data: _Optional[bytes] = ..., content_type: _Optional[str] = ...) -> None: ...

class UploadedBody(_message.Message):
    __slots__ = ("upload_id", "content_type")
    class As(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BYTES: _ClassVar[UploadedBody.As]
        TEXT: _ClassVar[UploadedBody.As]
        OBJECT: _ClassVar[UploadedBody.As]
    BYTES: UploadedBody.As
    TEXT: UploadedBody.As
    OBJECT: UploadedBody.As
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    AS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    upload_id: int
    content_type: str
    def __init__(self, upload_id: _Optional[int] = ..., content_type: _Optional[str] = ..., **kwargs) -> None: ...

class ForeignBody(_message.Message):
    __slots__ = ("protocol", "data")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    data: bytes
    def __init__(self, protocol: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
