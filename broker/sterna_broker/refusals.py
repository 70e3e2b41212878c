"""A refusal with everything that the contract's Error has: what a caller is told when something cannot be done.

The engine refuses with EngineError, which carries the same fields; both become one gRPC status here. Errors of the
session stream travel as frames and are the engine's; these are for the unary calls and for streams that end before
they began.
"""

from collections.abc import Sequence
from typing import Any

import grpc

from sterna_broker.contract import messaging

ERROR_METADATA = "sterna-error-bin"
"""Trailing metadata of a failed call: an Error message, encoded."""

_STATUS = {
    "MALFORMED_FRAME": grpc.StatusCode.INVALID_ARGUMENT,
    "UNSUPPORTED_VERSION": grpc.StatusCode.FAILED_PRECONDITION,
    "PROTOCOL_VIOLATION": grpc.StatusCode.FAILED_PRECONDITION,
    "INVALID_NAME": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_SELECTOR": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_MESSAGE": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_ARGUMENT": grpc.StatusCode.INVALID_ARGUMENT,
    "LIMIT_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "NOT_ALLOWED": grpc.StatusCode.FAILED_PRECONDITION,
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "PERMISSION_DENIED": grpc.StatusCode.PERMISSION_DENIED,
    "NO_SUCH_DESTINATION": grpc.StatusCode.NOT_FOUND,
    "NO_SUCH_SUBSCRIPTION": grpc.StatusCode.NOT_FOUND,
    "NO_SUCH_TRANSACTION": grpc.StatusCode.NOT_FOUND,
    "ALREADY_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "IN_USE": grpc.StatusCode.FAILED_PRECONDITION,
    "CLIENT_ID_IN_USE": grpc.StatusCode.FAILED_PRECONDITION,
    "MOVED": grpc.StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_PRODUCER": grpc.StatusCode.FAILED_PRECONDITION,
    "CLOSED": grpc.StatusCode.FAILED_PRECONDITION,
    "CONFLICT": grpc.StatusCode.FAILED_PRECONDITION,
    "OWNED": grpc.StatusCode.FAILED_PRECONDITION,
    "SPANS_HOMES": grpc.StatusCode.FAILED_PRECONDITION,
    "DESTINATION_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STORE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "STORE_FAILED": grpc.StatusCode.UNAVAILABLE,
    "MESSAGE_DAMAGED": grpc.StatusCode.DATA_LOSS,
    "TRANSACTION_ROLLED_BACK": grpc.StatusCode.ABORTED,
    "SHUTTING_DOWN": grpc.StatusCode.UNAVAILABLE,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "SLOW_CONSUMER": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "IDLE": grpc.StatusCode.ABORTED,
    "NO_RESPONDERS": grpc.StatusCode.FAILED_PRECONDITION,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}


class RefusedError(Exception):
    """Raised where a request ends. `code` is a name of ErrorCode in messaging.proto."""

    def __init__(
        self,
        code: str,
        subject: str,
        message: str,
        remedy: str,
        *,
        retryable: bool = False,
        offset: int = 0,
        addresses: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.subject = subject
        self.message = message
        self.remedy = remedy
        self.retryable = retryable
        self.offset = offset
        self.addresses = tuple(addresses)

    def __str__(self) -> str:
        return f"{self.code} ({self.subject}): {self.message} {self.remedy}"

    @classmethod
    def from_error(cls, error: messaging.Error) -> "RefusedError":
        """What the engine answered in a frame."""
        return cls(
            messaging.ErrorCode.Name(error.code),
            error.subject,
            error.message,
            error.remedy,
            retryable=error.retryable,
            offset=error.offset,
            addresses=error.addresses,
        )

    def document(self) -> dict[str, Any]:
        """As the engine takes it for an answer to a ticket."""
        return {
            "code": self.code,
            "subject": self.subject,
            "message": self.message,
            "remedy": self.remedy,
            "retryable": self.retryable,
            "addresses": list(self.addresses),
        }

    @property
    def error(self) -> messaging.Error:
        """As the contract writes it."""
        return messaging.Error(
            code=self.code,
            subject=self.subject,
            message=self.message,
            remedy=self.remedy,
            retryable=self.retryable,
            offset=self.offset,
            addresses=self.addresses,
        )

    @property
    def status(self) -> grpc.StatusCode:
        """The gRPC status that a call ends with."""
        return _STATUS.get(self.code, grpc.StatusCode.UNKNOWN)


def shutting_down() -> RefusedError:
    """The answer to whoever comes while the broker is stopping."""
    return RefusedError(
        "SHUTTING_DOWN",
        "broker",
        "The broker is stopping.",
        "Connect again, to another broker or later.",
        retryable=True,
    )
