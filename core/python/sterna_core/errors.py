"""What the engine raises. Each says what to do about it; codes are those of `sterna.v1.ErrorCode` or named here."""

__all__ = ["EngineError", "SelectorError", "StoreError"]


class EngineError(Exception):
    """A request that the engine refuses: `code` is the name of a `sterna.v1.ErrorCode`, `subject` what it is about."""

    def __init__(self, code: str, subject: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.subject = subject
        self.message = message
        self.remedy = remedy


class StoreError(Exception):
    """A store that cannot be opened or used. `code`: LOCKED, DAMAGED, SETTINGS, FAILED, DISK or STATE."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


class SelectorError(ValueError):
    """A text that is no selector. `offset` counts characters from 0; `rendered` shows the line and a caret under it."""

    def __init__(self, message: str, offset: int, rendered: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.rendered = rendered
