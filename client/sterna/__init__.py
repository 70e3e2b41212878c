"""The Python SDK of Sterna.

    async with sterna.connect("sterna://127.0.0.1:7222") as connection:
        await connection.send("orders", "one coffee")
        consumer = await connection.consumer("orders")
        async for message in consumer:
            print(message.body)

`sterna.blocking` is the same without asyncio. Names are loaded when they are first used, so that importing this package
(the command line does so for every `--help`) costs neither grpc nor protobuf.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sterna._version import __version__

if TYPE_CHECKING:
    from sterna import blocking as blocking
    from sterna import errors as errors
    from sterna import ledger as ledger
    from sterna._secrets import SecretFile as SecretFile
    from sterna.bodies import Foreign as Foreign
    from sterna.bodies import MapBody as MapBody
    from sterna.bodies import Object as Object
    from sterna.bodies import Properties as Properties
    from sterna.bodies import StreamBody as StreamBody
    from sterna.connections import Connection as Connection
    from sterna.connections import connect as connect
    from sterna.consumers import Consumer as Consumer
    from sterna.destinations import Destination as Destination
    from sterna.destinations import Queue as Queue
    from sterna.destinations import Topic as Topic
    from sterna.errors import ErrorCode as ErrorCode
    from sterna.errors import SternaError as SternaError
    from sterna.events import Closed as Closed
    from sterna.events import Interrupted as Interrupted
    from sterna.events import Restored as Restored
    from sterna.events import TemporaryReplaced as TemporaryReplaced
    from sterna.factories import ConnectionFactory as ConnectionFactory
    from sterna.ledger import Ledger as Ledger
    from sterna.messages import Message as Message
    from sterna.messages import Sent as Sent
    from sterna.modes import AcknowledgeMode as AcknowledgeMode
    from sterna.modes import DeliveryMode as DeliveryMode
    from sterna.modes import Durability as Durability
    from sterna.naming import Naming as Naming
    from sterna.naming import lookup as lookup
    from sterna.options import Reconnect as Reconnect
    from sterna.producers import Producer as Producer
    from sterna.sessions import Session as Session
    from sterna.tls import Tls as Tls
    from sterna.values import Array as Array
    from sterna.values import Byte as Byte
    from sterna.values import Char as Char
    from sterna.values import Double as Double
    from sterna.values import Float as Float
    from sterna.values import Int as Int
    from sterna.values import Long as Long
    from sterna.values import Short as Short

_HOMES = {
    "_secrets": ("SecretFile",),
    "bodies": ("Foreign", "MapBody", "Object", "Properties", "StreamBody"),
    "connections": ("Connection", "connect"),
    "consumers": ("Consumer",),
    "destinations": ("Destination", "Queue", "Topic"),
    "errors": ("ErrorCode", "SternaError"),
    "events": ("Closed", "Interrupted", "Restored", "TemporaryReplaced"),
    "factories": ("ConnectionFactory",),
    "ledger": ("Ledger",),
    "messages": ("Message", "Sent"),
    "modes": ("AcknowledgeMode", "DeliveryMode", "Durability"),
    "naming": ("Naming", "lookup"),
    "options": ("Reconnect",),
    "producers": ("Producer",),
    "sessions": ("Session",),
    "tls": ("Tls",),
    "values": ("Array", "Byte", "Char", "Double", "Float", "Int", "Long", "Short"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AcknowledgeMode",
    "Array",
    "Byte",
    "Char",
    "Closed",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "DeliveryMode",
    "Destination",
    "Double",
    "Durability",
    "ErrorCode",
    "Float",
    "Foreign",
    "Int",
    "Interrupted",
    "Ledger",
    "Long",
    "MapBody",
    "Message",
    "Naming",
    "Object",
    "Producer",
    "Properties",
    "Queue",
    "Reconnect",
    "Restored",
    "SecretFile",
    "Sent",
    "Session",
    "Short",
    "SternaError",
    "StreamBody",
    "TemporaryReplaced",
    "Tls",
    "Topic",
    "__version__",
    "blocking",
    "connect",
    "errors",
    "ledger",
    "lookup",
]


def __getattr__(name: str) -> Any:
    if name in ("blocking", "errors", "ledger"):
        return import_module(f"sterna.{name}")
    if name in _MODULES:
        return getattr(import_module(f"sterna.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'sterna' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
