"""The small choices of the contract: how a message is held, how it is acknowledged, how safe a confirm says it is."""

from __future__ import annotations

import enum


class DeliveryMode(enum.IntEnum):
    """How hard the broker holds on to a message (EMS-MSG-A16 to A19)."""

    #: On disk where anybody durable wants it; confirmed once as safe as its store promises.
    PERSISTENT = 0
    #: In memory; confirmed once accepted; gone with the broker.
    NON_PERSISTENT = 1
    #: Never confirmed, never refused; dropped in silence when it cannot be accepted.
    RELIABLE = 2


class AcknowledgeMode(enum.IntEnum):
    """Who acknowledges what a session receives, and when (EMS-CLI-A05)."""

    #: The SDK, when the application is done with a message: on return from `receive`, at the loop's next step, when a
    #: listener returns.
    AUTO = 0
    #: The application; one `acknowledge()` covers everything that its session was handed so far, one
    #: `acknowledge(alone=True)` its own message.
    CLIENT = 1
    #: As AUTO, lazily: after a failure some messages may come again.
    DUPS_OK = 2
    #: Nobody: the broker forgets a message once it is sent. At most once; not for durable subscriptions.
    NONE = 3
    #: The application, message by message.
    EXPLICIT_CLIENT = 4
    #: As EXPLICIT_CLIENT, lazily.
    EXPLICIT_CLIENT_DUPS_OK = 5
    #: EXPLICIT_CLIENT by its other name.
    INDIVIDUAL = 6
    #: Sends and acknowledgements take effect together, at commit.
    TRANSACTED = 7


class Durability(enum.IntEnum):
    """How safe a confirmed message is."""

    #: In the broker's memory.
    ACCEPTED = 0
    #: On the broker's disk.
    DURABLE = 1
    #: On the disks of all in-sync members of a pair.
    REPLICATED = 2
