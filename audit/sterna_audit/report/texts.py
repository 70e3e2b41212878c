"""Texts as a page shows them. Names come from clients: they may hold anything."""

import datetime as dt
import unicodedata
from typing import Any

_LONGEST = 400
#: Control, format (which may turn a line's direction round), surrogate, private and unassigned characters.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def printable(text: object) -> str:
    """A text in which every character can be seen, and of a length that can be read."""
    whole = str(text)
    shown = whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}… ({len(whole)} characters)"
    return "".join("\ufffd" if unicodedata.category(one) in _UNSEEN else one for one in shown)


def moment(time_ms: int) -> str:
    """A time as `2026-11-23 06:00:00 UTC`; empty for 0, and for what is no time."""
    try:
        return f"{dt.datetime.fromtimestamp(time_ms / 1_000, dt.timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if time_ms else ""  # noqa: UP017
    except (OverflowError, OSError, ValueError):
        return ""


def number(value: Any) -> str:
    """A number with thousands apart; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int):
        return printable(value)
    return f"{value:,}"
