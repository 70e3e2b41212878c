from sterna._proto.sterna.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadBalancing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOAD_BALANCING_NONE: _ClassVar[LoadBalancing]
    LOAD_BALANCING_RANDOM: _ClassVar[LoadBalancing]
LOAD_BALANCING_NONE: LoadBalancing
LOAD_BALANCING_RANDOM: LoadBalancing

class LookupRequest(_message.Message):
    __slots__ = ("name", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ANY: _ClassVar[LookupRequest.Kind]
        CONNECTION_FACTORY: _ClassVar[LookupRequest.Kind]
        QUEUE: _ClassVar[LookupRequest.Kind]
        TOPIC: _ClassVar[LookupRequest.Kind]
    ANY: LookupRequest.Kind
    CONNECTION_FACTORY: LookupRequest.Kind
    QUEUE: LookupRequest.Kind
    TOPIC: LookupRequest.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: LookupRequest.Kind
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[LookupRequest.Kind, str]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("factory", "destination")
    FACTORY_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    factory: ConnectionFactory
    destination: _message_pb2.Destination
    def __init__(self, factory: _Optional[_Union[ConnectionFactory, _Mapping]] = ..., destination: _Optional[_Union[_message_pb2.Destination, _Mapping]] = ...) -> None: ...

class ConnectionFactory(_message.Message):
    __slots__ = ("name", "url", "load_balancing", "client_id", "connect_attempts", "connect_delay_ms", "connect_timeout_ms", "reconnect_delay_ms", "reconnect_delay_max_ms", "reconnect_give_up_ms", "heartbeat_ms", "tls")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    LOAD_BALANCING_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_DELAY_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_GIVE_UP_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    load_balancing: LoadBalancing
    client_id: str
    connect_attempts: int
    connect_delay_ms: int
    connect_timeout_ms: int
    reconnect_delay_ms: int
    reconnect_delay_max_ms: int
    reconnect_give_up_ms: int
    heartbeat_ms: int
    tls: FactoryTls
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., load_balancing: _Optional[_Union[LoadBalancing, str]] = ..., client_id: _Optional[str] = ..., connect_attempts: _Optional[int] = ..., connect_delay_ms: _Optional[int] = ..., connect_timeout_ms: _Optional[int] = ..., reconnect_delay_ms: _Optional[int] = ..., reconnect_delay_max_ms: _Optional[int] = ..., reconnect_give_up_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., tls: _Optional[_Union[FactoryTls, _Mapping]] = ...) -> None: ...

class FactoryTls(_message.Message):
    __slots__ = ("ca_file", "certificate_file", "key_file", "server_name")
    CA_FILE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FILE_FIELD_NUMBER: _ClassVar[int]
    KEY_FILE_FIELD_NUMBER: _ClassVar[int]
    SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    ca_file: str
    certificate_file: str
    key_file: str
    server_name: str
    def __init__(self, ca_file: _Optional[str] = ..., certificate_file: _Optional[str] = ..., key_file: _Optional[str] = ..., server_name: _Optional[str] = ...) -> None: ...
