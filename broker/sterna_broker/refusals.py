"""A refusal with everything that the contract's Error has: what a caller is told when something cannot be done.

The engine refuses with EngineError, which carries the same fields; both become one gRPC status (server/errors.py).
"""


class RefusedError(Exception):
    """Raised where a request ends. `code` is a name of ErrorCode in messaging.proto."""

    def __init__(
        self, code: str, subject: str, message: str, remedy: str, *, retryable: bool = False, offset: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.subject = subject
        self.message = message
        self.remedy = remedy
        self.retryable = retryable
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.code} ({self.subject}): {self.message} {self.remedy}"
