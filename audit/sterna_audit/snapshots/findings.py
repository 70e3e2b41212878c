"""What is wrong with a snapshot or a chain of them, as a value: reading one that is broken never ends in an error."""

from dataclasses import dataclass
from typing import Literal

What = Literal[
    "missing-file",
    "altered-file",
    "unreadable-file",
    "foreign-schema",
    "newer-schema",
    "missing-column",
    "wrong-rows",
    "no-manifest",
    "broken-manifest",
    "foreign-manifest",
    "unsigned",
    "unknown-key",
    "wrong-signature",
    "broken-chain",
    "missing-cut",
    "wrong-range",
    "broken-anchor",
]
"""Kinds of faults. They are for programs, and do not change their meaning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        file: which file or folder, from the store's root on.
        what: the kind of fault.
        why: a sentence for people.
    """

    file: str
    what: What
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}: {self.why}"
