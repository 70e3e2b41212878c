"""What can go wrong with etcd, told by what the caller may conclude from it.

    EtcdError
    ├── UnknownOutcomeError     it may have been done: read before trying again
    └── NotDoneError            it has certainly not been done
        ├── UnavailableError        no endpoint could take it; the same may succeed later
        ├── CompactedError          the revision asked for is gone
        ├── LeaseNotFoundError      the lease has ended
        ├── NoSpaceError            etcd's quota is used up: it takes no writes
        ├── AccessError             user, password, certificate or rights
        └── InvalidRequestError     etcd refuses the request as such

Reads never end in UnknownOutcomeError: asking again does no harm, so they are repeated instead. The one place that maps
gRPC's statuses is `classified`; it decides by status and by etcd's own words, which are part of its interface (its Go
client maps by them, too).
"""

import enum

import grpc


class EtcdError(Exception):
    """Any failure of the shared store."""


class UnknownOutcomeError(EtcdError):
    """The request was sent and its answer is missing: it may have been done, or may yet be."""


class NotDoneError(EtcdError):
    """Nothing was changed, and nothing will be by this request."""


class UnavailableError(NotDoneError):
    """No endpoint could take the request in time."""


class CompactedError(NotDoneError):
    """The revision asked for has been compacted away; `revision` is the oldest that there is (0: not told)."""

    def __init__(self, message: str, revision: int = 0) -> None:
        super().__init__(message)
        self.revision = revision


class LeaseNotFoundError(NotDoneError):
    """The lease has ended, with every key that hung on it."""


class NoSpaceError(NotDoneError):
    """etcd's space quota is used up: it takes no writes until somebody makes room and disarms the alarm."""


class AccessError(NotDoneError):
    """User, password, certificate or rights are not what etcd wants."""


class InvalidRequestError(NotDoneError):
    """etcd refuses the request as such: asking again changes nothing."""


class Verdict(enum.Enum):
    """What to do after one attempt at one endpoint has failed."""

    ELSEWHERE = "not done, and another endpoint may do it"
    AUTHENTICATE = "not done for want of a valid token"
    UNKNOWN = "sent, outcome unknown"
    FINAL = "not done, and no endpoint will"


# etcd's words for what it has not begun although its status alone would leave that open.
_NOT_BEGUN = ("no leader", "not leader", "too many requests", "rpc not supported for learner", "not capable")
_NOT_SENT = ("failed to connect to all addresses", "dns resolution failed", "connection refused")
_TOKEN = ("invalid auth token", "revision of auth store is old")
_ACCESS = ("authentication failed", "permission denied", "user name is empty", "user name not found")


def classified(error: grpc.aio.AioRpcError) -> tuple[Verdict, EtcdError]:
    """The verdict on a failed attempt, and the error to raise if it was the last."""
    code, words = error.code(), (error.details() or "").lower()
    text = f"etcd: {error.details() or code.name}"
    if any(token in words for token in _TOKEN):
        return Verdict.AUTHENTICATE, AccessError(text)
    if "required revision has been compacted" in words:
        return Verdict.FINAL, CompactedError(text)
    if "requested lease not found" in words:
        return Verdict.FINAL, LeaseNotFoundError(text)
    if "database space exceeded" in words:
        return Verdict.FINAL, NoSpaceError(text)
    if any(part in words for part in _ACCESS) or code in (
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    ):
        return Verdict.FINAL, AccessError(text)
    if any(part in words for part in (*_NOT_BEGUN, *_NOT_SENT)):
        return Verdict.ELSEWHERE, UnavailableError(text)
    if code in _REFUSALS or "larger than max" in words:
        return Verdict.FINAL, InvalidRequestError(text)
    return Verdict.UNKNOWN, UnknownOutcomeError(f"{text} (it may have been done)")


_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
