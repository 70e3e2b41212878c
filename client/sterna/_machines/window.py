"""What a broker may send ahead to one consumer: credit in messages and in bytes (EMS-DEST-A26 to A28).

Credit is absolute, counted since the consumer was opened on its link, and raised when half of a window was handed out.
Without a prefetch (0) a message is asked for only while somebody waits; one that comes after that is held for the next
(EMS-DEST-A29). A machine without a link: it is told what happens and says what to ask for.
"""

from __future__ import annotations

from typing import Any


class Window:
    """`messages` and `bytes` are how much may be ahead; 0 bytes: no bound in bytes."""

    __slots__ = ("_limit", "_limit_bytes", "_received", "_taken", "_taken_bytes", "bytes", "messages")

    def __init__(self, messages: int, bytes_: int) -> None:
        self.messages = messages
        self.bytes = bytes_
        self._received = self._taken = self._taken_bytes = self._limit = self._limit_bytes = 0

    def begin(self, kept: int, kept_bytes: int) -> tuple[int, int]:
        """A new link: the credit to open with. What is kept from before was not sent on it, and gives none back."""
        self._received = self._limit = self._limit_bytes = 0
        self._taken, self._taken_bytes = -kept, -kept_bytes
        if self.messages:
            self._limit, self._limit_bytes = self.messages, self.bytes
        return self._limit, self._limit_bytes

    def received(self, count: int) -> None:
        """So many messages have come."""
        self._received += count

    def took(self, count: int, size: int) -> bool:
        """So many, with so many bytes, were handed out or thrown away. Whether it is time to ask for more."""
        self._taken += count
        self._taken_bytes += size
        if not self.messages:
            return False
        if (self._limit - self._taken) * 2 <= self.messages:
            return True
        return bool(self.bytes) and (self._limit_bytes - self._taken_bytes) * 2 <= self.bytes

    def raised_to(self, limit: int) -> None:
        """The broker counts the credit from there on (Drained)."""
        self._limit = max(self._limit, limit)

    def wanted(self, *, one: bool) -> tuple[int, int] | None:
        """The credit to ask for, messages and bytes; None: there is enough. `one`: somebody waits for one."""
        messages = self._taken + self.messages
        if not self.messages and one:
            messages = self._received + 1
        size = max(self._taken_bytes + self.bytes, self._limit_bytes) if self.bytes else 0
        if messages <= self._limit and size <= self._limit_bytes:
            return None
        self._limit, self._limit_bytes = max(messages, self._limit), size
        return self._limit, size


def size_of(delivery: Any) -> int:
    """What a delivery takes of the credit in bytes: the message, with what was uploaded of it."""
    return len(delivery.message) + int(delivery.uploaded_bytes)
