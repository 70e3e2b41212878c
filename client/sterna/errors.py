"""Every error the SDK raises, one class for each thing a caller can react to.

    SternaError
     ├── UsageError                      yours: the same call fails again until it is changed
     │    ├── InvalidArgumentError       INVALID_ARGUMENT (also a ValueError)
     │    │    ├── InvalidNameError      INVALID_NAME
     │    │    ├── InvalidSelectorError  INVALID_SELECTOR, with the character's offset
     │    │    └── InvalidMessageError   INVALID_MESSAGE
     │    ├── ConversionError            a value does not read as the type asked for (also a TypeError)
     │    │    └── EndOfStreamError      a stream body has no further item
     │    ├── LimitExceededError         LIMIT_EXCEEDED; `subject` names the limit
     │    ├── NotAllowedError            NOT_ALLOWED
     │    │    └── SpansHomesError       SPANS_HOMES
     │    └── ClosedError                CLOSED
     ├── AccessError                     who may do what
     │    ├── UnauthenticatedError       UNAUTHENTICATED
     │    └── PermissionDeniedError      PERMISSION_DENIED
     ├── ExistenceError                  what exists, and what does not
     │    ├── NoSuchDestinationError     NO_SUCH_DESTINATION
     │    ├── NoSuchSubscriptionError    NO_SUCH_SUBSCRIPTION
     │    ├── NoSuchTransactionError     NO_SUCH_TRANSACTION
     │    ├── AlreadyExistsError         ALREADY_EXISTS
     │    ├── InUseError                 IN_USE
     │    │    └── ClientIdInUseError    CLIENT_ID_IN_USE
     │    ├── MovedError                 MOVED, with the addresses
     │    ├── UnknownProducerError       UNKNOWN_PRODUCER
     │    └── ConflictError              CONFLICT
     │         └── OwnedError            OWNED
     ├── BrokerError                     the broker's or the destination's state
     │    ├── DestinationFullError       DESTINATION_FULL
     │    ├── StoreFullError             STORE_FULL
     │    ├── StoreFailedError           STORE_FAILED
     │    ├── MessageDamagedError        MESSAGE_DAMAGED
     │    ├── UnavailableError           UNAVAILABLE
     │    │    └── ShuttingDownError     SHUTTING_DOWN
     │    ├── NoRespondersError          NO_RESPONDERS
     │    └── InternalError              INTERNAL
     ├── ConnectionError                 between here and there (also the builtin ConnectionError)
     │    ├── UnreachableError           no broker answered at any address
     │    │    └── TlsError              TLS failed: an authority, a certificate or a name is wrong
     │    ├── ConnectionLostError        the stream broke, or reconnecting was given up
     │    ├── ProtocolError              MALFORMED_FRAME, UNSUPPORTED_VERSION, PROTOCOL_VIOLATION
     │    ├── SlowConsumerError          SLOW_CONSUMER
     │    └── IdleError                  IDLE
     ├── TransactionRolledBackError      TRANSACTION_ROLLED_BACK
     │    └── TransactionInDoubtError    the connection broke while the commit was under way
     ├── LedgerError                     the ledger of this connection cannot be written, or a ledger not be read
     │    └── LedgerDamagedError         what stands in a ledger's file, at `offset`, is damaged
     ├── RequestTimeoutError             no reply came in time (also the builtin TimeoutError)
     ├── SendTimeoutError                not confirmed in time (also the builtin TimeoutError)
     └── FlushError                      messages of `send_soon` that failed, each with its error

Each error says what it is about (`subject`), what is wrong (`cause`), what to do (`remedy`) and whether the same call
may succeed later without a change (`retryable`). `ErrorCode` of the contract and gRPC's own status codes are mapped
here and nowhere else; a test fails when a code of the contract has no class.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Sequence
from typing import Any


class ErrorCode(enum.IntEnum):
    """The stable codes of the contract (`sterna.v1.ErrorCode`)."""

    UNSPECIFIED = 0
    MALFORMED_FRAME = 1
    UNSUPPORTED_VERSION = 2
    PROTOCOL_VIOLATION = 3
    INVALID_NAME = 4
    INVALID_SELECTOR = 5
    INVALID_MESSAGE = 6
    INVALID_ARGUMENT = 7
    LIMIT_EXCEEDED = 8
    NOT_ALLOWED = 9
    UNAUTHENTICATED = 16
    PERMISSION_DENIED = 17
    NO_SUCH_DESTINATION = 24
    NO_SUCH_SUBSCRIPTION = 25
    NO_SUCH_TRANSACTION = 26
    ALREADY_EXISTS = 27
    IN_USE = 28
    CLIENT_ID_IN_USE = 29
    MOVED = 30
    UNKNOWN_PRODUCER = 31
    CLOSED = 32
    CONFLICT = 33
    OWNED = 34
    SPANS_HOMES = 35
    DESTINATION_FULL = 40
    STORE_FULL = 41
    STORE_FAILED = 42
    MESSAGE_DAMAGED = 43
    TRANSACTION_ROLLED_BACK = 44
    SHUTTING_DOWN = 45
    UNAVAILABLE = 46
    SLOW_CONSUMER = 47
    IDLE = 48
    NO_RESPONDERS = 49
    INTERNAL = 63


class SternaError(Exception):
    """The root of all errors of the SDK.

    `code` is the contract's code (UNSPECIFIED for errors that the SDK itself found), `subject` the field, name or
    limit it is about, `cause` what is wrong, `remedy` what to do, `retryable` whether the same call may succeed later.
    """

    default_code = ErrorCode.UNSPECIFIED
    default_remedy = ""

    def __init__(
        self,
        cause: str,
        *,
        subject: str = "",
        remedy: str = "",
        code: ErrorCode | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.subject = subject
        self.remedy = remedy or self.default_remedy
        self.code = self.default_code if code is None else code
        self.retryable = retryable

    def __str__(self) -> str:
        about = f"{self.subject}: " if self.subject and self.subject not in self.cause else ""
        name = f" [{self.code.name}]" if self.code else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{about}{self.cause}{name}{remedy}"


class UsageError(SternaError):
    """The caller's: the same call fails again until it is changed."""


class InvalidArgumentError(UsageError, ValueError):
    """An argument breaks a rule; `subject` names it."""

    default_code = ErrorCode.INVALID_ARGUMENT


class InvalidNameError(InvalidArgumentError):
    """The name of a destination, a subscription or a client breaks the rules for names."""

    default_code = ErrorCode.INVALID_NAME


class InvalidSelectorError(InvalidArgumentError):
    """A selector cannot be read; `offset` is the character, counted from 0."""

    default_code = ErrorCode.INVALID_SELECTOR
    offset = 0


class InvalidMessageError(InvalidArgumentError):
    """A header field, a property or a body breaks the rules for messages."""

    default_code = ErrorCode.INVALID_MESSAGE


class ConversionError(UsageError, TypeError):
    """A value was asked for as a type that it does not read as (EMS-MSG-A25)."""


class EndOfStreamError(ConversionError):
    """A stream body was read beyond its last item."""


class LimitExceededError(UsageError):
    """A limit of the broker or of the SDK; `subject` names it."""

    default_code = ErrorCode.LIMIT_EXCEEDED


class NotAllowedError(UsageError):
    """Not possible on this destination or in this session, whoever asks."""

    default_code = ErrorCode.NOT_ALLOWED


class SpansHomesError(NotAllowedError):
    """It would reach over several brokers of a cluster: a pattern, a transaction."""

    default_code = ErrorCode.SPANS_HOMES
    default_remedy = "give what works together one home, or use one session for each broker"


class ClosedError(UsageError):
    """The connection, session, producer or consumer was closed before."""

    default_code = ErrorCode.CLOSED


class AccessError(SternaError):
    """Who may do what."""


class UnauthenticatedError(AccessError):
    """The broker does not know who this is."""

    default_code = ErrorCode.UNAUTHENTICATED


class PermissionDeniedError(AccessError):
    """The broker knows who this is, and refuses."""

    default_code = ErrorCode.PERMISSION_DENIED


class ExistenceError(SternaError):
    """What exists, and what does not."""


class NoSuchDestinationError(ExistenceError):
    """The destination does not exist, and no wildcard entry of the broker lets it be created (EMS-DEST-A46)."""

    default_code = ErrorCode.NO_SUCH_DESTINATION


class NoSuchSubscriptionError(ExistenceError):
    """No durable subscription has this name."""

    default_code = ErrorCode.NO_SUCH_SUBSCRIPTION


class NoSuchTransactionError(ExistenceError):
    """No transaction has this id."""

    default_code = ErrorCode.NO_SUCH_TRANSACTION


class AlreadyExistsError(ExistenceError):
    """The name is taken."""

    default_code = ErrorCode.ALREADY_EXISTS


class InUseError(ExistenceError):
    """Somebody uses it: a durable subscription with an active consumer, a destination with messages."""

    default_code = ErrorCode.IN_USE


class ClientIdInUseError(InUseError):
    """Another connection holds this client id."""

    default_code = ErrorCode.CLIENT_ID_IN_USE


class MovedError(ExistenceError):
    """The destination lives on another broker, at `addresses`."""

    default_code = ErrorCode.MOVED
    addresses: tuple[str, ...] = ()


class UnknownProducerError(ExistenceError):
    """The broker forgot this producer: whether its unconfirmed messages arrived cannot be told any more."""

    default_code = ErrorCode.UNKNOWN_PRODUCER
    default_remedy = "compare with what the receivers have, or send again and accept duplicates"


class ConflictError(ExistenceError):
    """It exists otherwise than asked for: another selector, another revision."""

    default_code = ErrorCode.CONFLICT


class OwnedError(ConflictError):
    """It belongs to somebody else, whom the message names, and is changed there."""

    default_code = ErrorCode.OWNED


class BrokerError(SternaError):
    """The state of the broker or of a destination."""


class DestinationFullError(BrokerError):
    """The destination holds as much as it may."""

    default_code = ErrorCode.DESTINATION_FULL


class StoreFullError(BrokerError):
    """There is no space on the broker's disk, or its quota is used up."""

    default_code = ErrorCode.STORE_FULL


class StoreFailedError(BrokerError):
    """The broker's disk failed a write: it confirms nothing any more."""

    default_code = ErrorCode.STORE_FAILED


class MessageDamagedError(BrokerError):
    """A stored message fails its checksum."""

    default_code = ErrorCode.MESSAGE_DAMAGED


class UnavailableError(BrokerError):
    """Not now: the broker is starting, a standby, or overloaded."""

    default_code = ErrorCode.UNAVAILABLE


class ShuttingDownError(UnavailableError):
    """The broker is about to stop."""

    default_code = ErrorCode.SHUTTING_DOWN


class NoRespondersError(BrokerError):
    """Nobody consumes where a request went: it was not kept, and nobody will answer it."""

    default_code = ErrorCode.NO_RESPONDERS


class InternalError(BrokerError):
    """A defect of the broker."""

    default_code = ErrorCode.INTERNAL
    default_remedy = "please report it with the broker's log"


class ConnectionError(SternaError, builtins.ConnectionError):  # noqa: A001 - the SDK's root of what connections do
    """Between here and there."""


class UnreachableError(ConnectionError):
    """No broker answered at any address of the URL."""

    default_remedy = "start a broker there, or correct the URL"


class TlsError(UnreachableError):
    """TLS failed, and `cause` says at what: the authority, the time or the name of a certificate, or a file."""

    default_remedy = "compare the TLS settings of both sides"


class ConnectionLostError(ConnectionError):
    """The stream to the broker broke, or reconnecting was given up."""


class ProtocolError(ConnectionError):
    """The two sides do not understand each other."""

    default_code = ErrorCode.PROTOCOL_VIOLATION


class SlowConsumerError(ConnectionError):
    """The broker cut the connection off: it did not read what it had asked for."""

    default_code = ErrorCode.SLOW_CONSUMER


class IdleError(ConnectionError):
    """One side heard nothing from the other for the heartbeat interval."""

    default_code = ErrorCode.IDLE


class TransactionRolledBackError(SternaError):
    """Nothing of the transaction took effect; what it had received comes again."""

    default_code = ErrorCode.TRANSACTION_ROLLED_BACK
    default_remedy = "do the transaction again"


class TransactionInDoubtError(TransactionRolledBackError):
    """The connection broke while the commit was under way: it took effect whole or not at all, unknown which."""

    default_remedy = "what was received in it and comes again was not committed: decide by that, or by your own keys"


class LedgerError(SternaError):
    """The ledger of a connection cannot be written any more, or a ledger's file not be read; `subject` is the file.

    A connection that needs its ledger ends with it. What it had sent and was not confirmed is in doubt, what it had not
    sent was not sent.
    """


class LedgerDamagedError(LedgerError):
    """A ledger's file (`subject`) is damaged at `offset`, in bytes from its beginning."""

    offset = 0


class RequestTimeoutError(SternaError, TimeoutError):
    """No reply came in time; a later one is dropped."""


class SendTimeoutError(SternaError, TimeoutError):
    """The message was not confirmed in time. It may be stored all the same, now or later: it is still being sent."""

    default_remedy = "do not send it again unless two of it do no harm; flush() tells when it is settled"


class FlushError(SternaError):
    """Messages sent with `send_soon` that failed since the last flush: `failures` holds (message id, error) pairs.

    Of very many it holds the first thousand; `count` says how many there are.
    """

    failures: tuple[tuple[str, SternaError], ...] = ()
    count: int = 0

    @classmethod
    def of(cls, failures: Sequence[tuple[str, SternaError]], count: int) -> FlushError:
        """The error for `count` failed messages, of which `failures` (at least one) are kept."""
        message_id, first = failures[0]
        error = cls(
            f"{count} message(s) sent with send_soon failed; the first, {message_id}: {first}",
            subject=first.subject,
            remedy=first.remedy,
            code=first.code,
            retryable=all(one.retryable for _, one in failures),
        )
        error.failures, error.count = tuple(failures), count
        error.__cause__ = first
        return error


#: The class for each code of the contract.
BY_CODE: dict[ErrorCode, type[SternaError]] = {
    ErrorCode.UNSPECIFIED: InternalError,
    ErrorCode.MALFORMED_FRAME: ProtocolError,
    ErrorCode.UNSUPPORTED_VERSION: ProtocolError,
    ErrorCode.PROTOCOL_VIOLATION: ProtocolError,
    ErrorCode.INVALID_NAME: InvalidNameError,
    ErrorCode.INVALID_SELECTOR: InvalidSelectorError,
    ErrorCode.INVALID_MESSAGE: InvalidMessageError,
    ErrorCode.INVALID_ARGUMENT: InvalidArgumentError,
    ErrorCode.LIMIT_EXCEEDED: LimitExceededError,
    ErrorCode.NOT_ALLOWED: NotAllowedError,
    ErrorCode.UNAUTHENTICATED: UnauthenticatedError,
    ErrorCode.PERMISSION_DENIED: PermissionDeniedError,
    ErrorCode.NO_SUCH_DESTINATION: NoSuchDestinationError,
    ErrorCode.NO_SUCH_SUBSCRIPTION: NoSuchSubscriptionError,
    ErrorCode.NO_SUCH_TRANSACTION: NoSuchTransactionError,
    ErrorCode.ALREADY_EXISTS: AlreadyExistsError,
    ErrorCode.IN_USE: InUseError,
    ErrorCode.CLIENT_ID_IN_USE: ClientIdInUseError,
    ErrorCode.MOVED: MovedError,
    ErrorCode.UNKNOWN_PRODUCER: UnknownProducerError,
    ErrorCode.CLOSED: ClosedError,
    ErrorCode.CONFLICT: ConflictError,
    ErrorCode.OWNED: OwnedError,
    ErrorCode.SPANS_HOMES: SpansHomesError,
    ErrorCode.DESTINATION_FULL: DestinationFullError,
    ErrorCode.STORE_FULL: StoreFullError,
    ErrorCode.STORE_FAILED: StoreFailedError,
    ErrorCode.MESSAGE_DAMAGED: MessageDamagedError,
    ErrorCode.TRANSACTION_ROLLED_BACK: TransactionRolledBackError,
    ErrorCode.SHUTTING_DOWN: ShuttingDownError,
    ErrorCode.UNAVAILABLE: UnavailableError,
    ErrorCode.SLOW_CONSUMER: SlowConsumerError,
    ErrorCode.IDLE: IdleError,
    ErrorCode.NO_RESPONDERS: NoRespondersError,
    ErrorCode.INTERNAL: InternalError,
}

#: What a gRPC status means when the broker could not say more. Names, since grpc is imported late.
_BY_STATUS: dict[str, type[SternaError]] = {
    "UNAVAILABLE": ConnectionLostError,
    "CANCELLED": ConnectionLostError,
    "DEADLINE_EXCEEDED": ConnectionLostError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "UNIMPLEMENTED": ProtocolError,
    "RESOURCE_EXHAUSTED": LimitExceededError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "NOT_FOUND": ExistenceError,
    "INTERNAL": InternalError,
}


def is_for_now(error: SternaError) -> bool:
    """Whether the broker could not do something at present, has not done it, and may be able to later."""
    return isinstance(error, UnavailableError) and error.retryable


def lets_nobody_in(error: SternaError) -> bool:
    """Whether no connection is to be had at an address for now: nobody is there, or stops, or has as many as he may."""
    if isinstance(error, LimitExceededError):
        return error.retryable and error.subject == "connections"
    return isinstance(error, UnreachableError | ShuttingDownError)


def from_proto(error: Any) -> SternaError:
    """The exception for an `Error` of the contract. A code that this SDK does not know becomes a BrokerError."""
    try:
        code = ErrorCode(error.code)
    except ValueError:
        cause = f"{error.message} (code {error.code})"
        return BrokerError(cause, subject=error.subject, remedy=error.remedy, retryable=error.retryable)
    made = BY_CODE[code](
        error.message or code.name, subject=error.subject, remedy=error.remedy, code=code, retryable=error.retryable
    )
    if isinstance(made, MovedError):
        made.addresses = tuple(error.addresses)
    elif isinstance(made, InvalidSelectorError):
        made.offset = error.offset
    return made


def from_status(status: str, details: str, *, address: str) -> SternaError:
    """The exception for the end of a gRPC call with `status` (a name such as "UNAVAILABLE")."""
    kind = _BY_STATUS.get(status, ConnectionLostError)
    cause = f"the call ended with {status}" + (f": {details}" if details else "")
    return kind(cause, subject=address, retryable=kind is ConnectionLostError)
