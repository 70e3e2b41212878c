"""What this suite asks of a messaging provider: all that stands between the tests and what they are run against.

The words are those of JMS and of EMS. `sterna_provider.py` implements it with our SDK; whoever wants to run the suite
against another implementation writes another such file and gives it to the fixture `provider` in `conftest.py`.

Destinations are named by their kind and name, `Queue("orders")` or `Topic("prices.>")`. Properties of destinations have
the names of EMS: `expiration` and `redeliveryDelay` (here in milliseconds), `maxmsgs`, `maxbytes`, `overflowPolicy`,
`prefetch`, `maxRedelivery`, `exclusive`, `store`, `sender_name`, `sender_name_enforced`, `secure`. What is asked of
a message, a consumer and so on is written down below; a provider's own objects will do where they have it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

PERSISTENT, NON_PERSISTENT, RELIABLE = "PERSISTENT", "NON_PERSISTENT", "RELIABLE"


@dataclass(frozen=True)
class Destination:
    """A queue or a topic, or a pattern for several."""

    name: str

    def __str__(self) -> str:
        """As EMS prints it, and as selectors on `$sys.undelivered` see it: `Queue[orders]`."""
        return f"{type(self).__name__}[{self.name}]"


@dataclass(frozen=True)
class Queue(Destination):
    """Each message goes to one consumer."""


@dataclass(frozen=True)
class Topic(Destination):
    """Each message goes to every subscription."""


UNDELIVERED = Queue("$sys.undelivered")
#: What waits for its redelivery, of all queues.
RETURNING = Queue("$sys.redelivery.delay")
#: EMS says JMS_TIBCO here: a vendor's properties have its name.
PRESERVE_UNDELIVERED = "JMS_STERNA_PRESERVE_UNDELIVERED"
MESSAGE_EXTENSION = "JMS_STERNA_MSG_EXT"
SENDER, DISABLE_SENDER = "JMS_STERNA_SENDER", "JMS_STERNA_DISABLE_SENDER"


class Mode(enum.Enum):
    """How a session acknowledges (EMS-CLI-A05 to A08)."""

    AUTO = "AUTO_ACKNOWLEDGE"
    CLIENT = "CLIENT_ACKNOWLEDGE"
    DUPS_OK = "DUPS_OK_ACKNOWLEDGE"
    NONE = "NO_ACKNOWLEDGE"
    EXPLICIT = "EXPLICIT_CLIENT_ACKNOWLEDGE"
    EXPLICIT_DUPS_OK = "EXPLICIT_CLIENT_DUPS_OK_ACKNOWLEDGE"
    TRANSACTED = "SESSION_TRANSACTED"


class Refusal(enum.Enum):
    """Why a provider refuses something."""

    INVALID_NAME = "the name is no name of a destination, or no pattern where one is wanted"
    INVALID_SELECTOR = "the selector is none"
    INVALID_VALUE = "a value or property is out of its range, or not for this"
    INVALID_MESSAGE = "the message cannot be sent"
    CONVERSION = "a value does not read as this type"
    NOT_ADMITTED = "the server does not know the user, or not with this password"
    TOO_MUCH = "a limit of the server"
    NOT_ALLOWED = "the destination is not for this operation"
    NO_SUCH_DESTINATION = "it does not exist, and may not be created"
    NO_SUCH_SUBSCRIPTION = "nobody has subscribed so"
    FULL = "the destination is at its limit"
    IN_USE = "somebody else has it"
    CONFLICT = "it contradicts what is there"
    CLOSED = "it has been closed"
    ROLLED_BACK = "the transaction cannot be committed, and was rolled back"


class Message(Protocol):
    """A received message. Times are milliseconds since 1970."""

    @property
    def message_id(self) -> str: ...
    @property
    def destination(self) -> Any: ...
    @property
    def delivery_mode(self) -> Any: ...
    @property
    def expiration_ms(self) -> int: ...
    @property
    def delivery_time_ms(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def correlation_id(self) -> str | None: ...
    @property
    def reply_to(self) -> Any: ...
    @property
    def type(self) -> str: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def delivery_count(self) -> int: ...
    @property
    def encoding(self) -> str: ...
    @property
    def properties(self) -> Any:
        """A mapping with `get_short(name)` and the like."""

    @property
    def body(self) -> Any: ...
    def acknowledge(self, *, alone: bool = False) -> Any:
        """To be awaited. `alone`: it and no other, in each mode in which the application acknowledges."""


class Sent(Protocol):
    """What a sender learns of its message."""

    @property
    def message_id(self) -> str: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def delivery_time_ms(self) -> int: ...
    @property
    def expiration_ms(self) -> int: ...


class Producer(Protocol):
    """Sends to one destination; without one each send names it. Both take the options of `Session.producer`."""

    async def send(self, body: Any = None, *, destination: Destination | None = None, **how: Any) -> Sent: ...
    async def send_soon(self, body: Any = None, *, on_completion: Callable[[Any], None], **how: Any) -> None: ...
    async def close(self) -> None: ...


class Consumer(Protocol):
    """Receives from a queue or a subscription."""

    async def receive(self) -> Message:
        """Waits, patiently, and fails the test when nothing comes."""

    async def receive_for(self, timeout_ms: float) -> Message | None:
        """Waits so long."""

    def receive_no_wait(self) -> Message | None: ...
    async def close(self) -> None: ...


class Session(Protocol):
    """A context of producers and consumers with one way to acknowledge."""

    async def producer(self, destination: Destination | None = None, **defaults: Any) -> Producer:
        """`defaults`: delivery_mode, priority, time_to_live_ms, delivery_delay_ms."""

    async def send(self, destination: Destination, body: Any = None, **how: Any) -> Sent:
        """By a producer without destination.

        `how`: as `producer`, and properties, correlation_id, reply_to, type, encoding.
        """

    async def consumer(
        self,
        source: Destination,
        *,
        selector: str = "",
        durable: str = "",
        shared: str = "",
        no_local: bool = False,
        prefetch: int | None = None,
        listener: Callable[[Any], Any] | None = None,
    ) -> Consumer:
        """`durable` and `shared` are the subscription's name; both, and equal, for a shared durable one."""

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def recover(self) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def unsubscribe(self, name: str) -> None: ...
    async def close(self) -> None: ...


class Connection(Protocol):
    """A client's connection."""

    async def session(self, mode: Mode = Mode.AUTO, *, stopped: bool = False) -> Session: ...
    async def temporary(self, kind: type[Destination]) -> Destination: ...
    async def delete_temporary(self, destination: Destination) -> None: ...
    async def close(self) -> None: ...
    async def vanish(self) -> None:
        """Ends as when its process is killed: without a word."""

    @property
    def exceptions(self) -> Sequence[Any]:
        """What its exception listener has heard: one entry for each time that it lost the server."""


@dataclass(frozen=True)
class Held:
    """What a destination or a durable subscription holds, as an administrator sees it."""

    messages: int
    #: Of those, handed to consumers and not acknowledged.
    delivered: int
    #: static, dynamic, temporary, system.
    origin: str
    consumers: int
    #: What those messages take.
    bytes: int
    #: Of a topic, how many there are, durable and not.
    subscriptions: int
    #: How many messages came in, and how many were handed out.
    received: int
    sent: int
    #: Sessions whose sends wait for its flow control.
    waiting: int


class Provider(Protocol):
    """One server, with an administrator's rights. On it clients may create what is called `any.…`, and nothing else.

    Flow control is switched on.
    """

    async def connect(self, *, client_id: str = "", user: str = "", password: str = "") -> Connection:
        """Without a user it is the administrator, where users are checked, and else nobody."""

    async def define(self, destination: Destination, **properties: Any) -> None:
        """Makes a static destination or a wildcard entry, or gives it these properties in place of all it had."""

    async def define_store(self, name: str, mode: str = "") -> None:
        """Without a mode it has the one that stores have by default."""

    async def define_bridge(self, source: Destination, *targets: Destination | tuple[Destination, str]) -> str:
        """Targets, each with a selector or without. The answer is a name, for `delete_bridge`."""

    async def delete_bridge(self, name: str) -> None: ...
    async def define_durable(
        self, topic: Topic, name: str, *, client_id: str = "", selector: str = "", shared: bool = False
    ) -> None: ...
    async def delete(self, destination: Destination) -> None:
        """With all that it holds."""

    async def delete_empty(self, destination: Destination) -> None:
        """Refused when it holds messages."""

    async def delete_durable(self, name: str, *, client_id: str = "") -> None: ...
    async def purge(self, destination: Destination) -> int:
        """All that a queue holds, or all subscriptions to a topic."""

    async def purge_durable(self, name: str, *, client_id: str = "") -> int: ...
    async def held(self, destination: Destination) -> Held: ...
    async def held_by_durable(self, name: str, *, client_id: str = "") -> Held: ...
    async def effective(self, destination: Destination) -> dict[str, Any]:
        """The properties that hold for it, its own and what it inherits."""

    async def names(self, kind: type[Destination], pattern: str = "") -> list[str]:
        """What exists, wildcard entries too."""

    async def browse(self, queue: Queue, selector: str = "") -> Sequence[Message]: ...
    async def browse_durable(self, name: str, *, client_id: str = "") -> Sequence[Message]: ...
    async def clients(self) -> Sequence[str]:
        """The client ids of all connections, one for each; empty where none was chosen."""

    async def cut(self, client_id: str) -> None:
        """An administrator closes this client's connection."""

    async def stores(self) -> dict[str, tuple[str, int]]:
        """By name: the mode, `sync` or `async`, and how many messages it holds."""

    async def fall(self, *, crash: bool = False) -> None:
        """Stops the server, or kills it at once, under whoever is connected. Then comes `restart`."""

    async def restart(self, *, crash: bool = False) -> None:
        """Stops the server, or kills it, and starts it again over what it had stored. Clients are gone by then."""

    async def end(self) -> None:
        """Closes all that a test has opened."""

    def refusal_of(self, error: BaseException) -> Refusal | None: ...


@contextmanager
def refused(provider: Provider, *kinds: Refusal) -> Iterator[None]:
    """That what is done within is refused, and for one of these reasons."""
    try:
        yield
    except Exception as error:
        found = provider.refusal_of(error)
        if found is None:
            raise
        if found not in kinds:
            pytest.fail(f"refused as {found}: {error}")
    else:
        pytest.fail(f"not refused, although: {', or '.join(kind.value for kind in kinds)}")
