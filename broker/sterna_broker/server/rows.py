"""The engine's JSON rows as messages of the contract: fields of the same name are taken over."""

from typing import Any


def fill(message: Any, row: dict[str, Any]) -> None:
    """Sets the fields of a message that a row names; nested messages and lists of them, too."""
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if field.message_type is None:
            setattr(message, field.name, value)
        elif isinstance(value, list):
            for item in value:
                fill(getattr(message, field.name).add(), item)
        else:
            part = getattr(message, field.name)
            part.SetInParent()
            fill(part, value)
