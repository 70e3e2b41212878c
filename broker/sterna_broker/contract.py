"""The contract's generated types under short names: the broker's one door to the stubs."""

from sterna._proto.sterna.v1 import admin_pb2 as admin
from sterna._proto.sterna.v1 import message_pb2 as message
from sterna._proto.sterna.v1 import messaging_pb2 as messaging
from sterna._proto.sterna.v1 import naming_pb2 as naming

__all__ = ["admin", "message", "messaging", "naming"]
