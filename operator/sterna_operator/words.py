"""Numbers as people say them, for conditions and events."""


def counted(count: int, thing: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
