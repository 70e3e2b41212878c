"""Exit codes, and how an error becomes one.

Scripts depend on these numbers, so they never change their meaning. Every command ends through `failing`, which prints
what went wrong (code, cause, remedy) to stderr and exits with the number that fits.
"""

import enum
import sys

from sterna.errors import ConnectionLostError, SternaError, UnreachableError


class Exit(enum.IntEnum):
    """What the exit code of `sterna` means."""

    OK = 0
    ERROR = 1
    USAGE = 2
    PARTIAL = 3
    NOT_FOUND = 4
    DENIED = 5
    UNREACHABLE = 6
    # Something is not as it should be: what `sterna diff` was given is not what stands.
    CHECK_WARNING = 7
    CHECK_CRITICAL = 8


# By the stable name of a broker's error code (messaging.proto's ErrorCode); what is not here is ERROR.
_EXIT_BY_CODE = {
    "INVALID_NAME": Exit.USAGE,
    "INVALID_SELECTOR": Exit.USAGE,
    "INVALID_ARGUMENT": Exit.USAGE,
    "UNAUTHENTICATED": Exit.DENIED,
    "PERMISSION_DENIED": Exit.DENIED,
    "NO_SUCH_DESTINATION": Exit.NOT_FOUND,
    "NO_SUCH_SUBSCRIPTION": Exit.NOT_FOUND,
    "NO_SUCH_TRANSACTION": Exit.NOT_FOUND,
    "UNAVAILABLE": Exit.UNREACHABLE,
    "SHUTTING_DOWN": Exit.UNREACHABLE,
    "UNREACHABLE": Exit.UNREACHABLE,
}


class CommandError(Exception):
    """A command cannot go on, by no fault of the broker: a file that cannot be read, an argument that makes no sense.

    Args:
        message: what is wrong, in a sentence.
        remedy: what to do about it.
        exit_code: how the command ends.
    """

    def __init__(self, message: str, *, remedy: str = "", exit_code: Exit = Exit.ERROR) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.exit_code = exit_code


class PartlyDoneError(Exception):
    """A command was stopped while some of what it does was done already.

    Args:
        cause: what stopped it: an error that ends a command, or an interruption.
        report: how far it is, and from where to go on.
        is_partly: whether something was done at all; else the cause decides the exit code.
    """

    def __init__(self, cause: BaseException, report: str, *, is_partly: bool) -> None:
        super().__init__(report)
        self.cause = cause
        self.report = report
        self.is_partly = is_partly


def usage(message: str, remedy: str = "") -> CommandError:
    """A mistake in how the command was called."""
    return CommandError(message, remedy=remedy, exit_code=Exit.USAGE)


def exit_code_of(code: str) -> Exit:
    """The exit code for a broker's error code, by name."""
    return _EXIT_BY_CODE.get(code, Exit.ERROR)


def is_unreachable(kind: type[SternaError]) -> bool:
    """Whether an error of the SDK means that no broker was reached, whatever its code: it ends in UNREACHABLE."""
    return issubclass(kind, UnreachableError | ConnectionLostError)


def describe(title: str, message: str, remedy: str = "", cause: BaseException | None = None) -> str:
    """An error as people read it: what, why, what to do."""
    lines = [f"{title}: {message}"]
    if cause is not None and str(cause) and str(cause) not in message:
        lines.append(f"  cause:  {cause}")
    if remedy:
        lines.append(f"  remedy: {remedy}")
    return "\n".join(lines)


def complain(text: str) -> None:
    """Say something on stderr, past any progress bar."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
