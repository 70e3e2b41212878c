"""The SDK without asyncio: the same names and shapes as `sterna`, each call waiting for its outcome.

    with sterna.blocking.connect("sterna://127.0.0.1:7222") as connection:
        connection.send("orders", "one coffee")
        for message in connection.consumer("orders"):
            print(message.body)

A connection runs its asynchronous twin in one background thread; everything here may be called from any thread.
Listeners, hooks and completions are called in threads of a pool.
"""

from sterna.blocking._faces import Browser, Connection, Consumer, Message, Producer, Session, connect
from sterna.blocking._naming import ConnectionFactory, Naming, lookup

__all__ = [
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Message",
    "Naming",
    "Producer",
    "Session",
    "connect",
    "lookup",
]
