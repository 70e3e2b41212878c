"""Which audits there are, by their names: ours, and those that installed packages bring.

A package brings one by an entry point of the group `sterna_audit.audits`, whose object is an `Audit`. A name of ours is
ours.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from sterna_audit.audits.meanings import Meaning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sterna_audit.audits.history import History

GROUP = "sterna_audit.audits"
#: Ours, in the order in which they run: module and object.
_OURS: Mapping[str, str] = {
    "chain": "sterna_audit.audits.chain:AUDIT",
    "conservation": "sterna_audit.audits.conservation:AUDIT",
    "fan-out": "sterna_audit.audits.fanout:AUDIT",
    "counters": "sterna_audit.audits.counters:AUDIT",
    "ledgers": "sterna_audit.audits.ledgers:AUDIT",
    "order": "sterna_audit.audits.order:AUDIT",
    "bridges": "sterna_audit.audits.bridges:AUDIT",
    "endings": "sterna_audit.audits.endings:AUDIT",
    "dead-letters": "sterna_audit.audits.dead_letters:AUDIT",
    "backlog": "sterna_audit.audits.backlog:AUDIT",
    "drift": "sterna_audit.audits.drift:AUDIT",
}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


class AuditError(Exception):
    """An audit cannot be run; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit.

    Attributes:
        name: by which it is asked for, and under which its findings are kept: small letters, digits and hyphens.
        about: what it proves, in a sentence.
        run: from a history to findings, a DataFrame of `findings.SCHEMA`. Nothing else may come of it: it may be
            computed twice, or on another machine.
        meanings: of each kind of finding (`Finding.what`) what it means and what to do, for the report.
    """

    name: str
    about: str
    run: "Callable[[History], DataFrame]"
    meanings: Mapping[str, Meaning] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise AuditError(f"an audit cannot be called {self.name[:80]!r}: small letters, digits and hyphens")


def names() -> list[str]:
    """Those that can be asked for, in the order in which they run."""
    return [*_OURS, *sorted(_theirs())]


def audits(wanted: Iterable[str] = ()) -> list[Audit]:
    """The audits of these names, or all, in the order in which they run.

    Raises:
        AuditError: there is none of a name, or it cannot be imported, or is no audit.
    """
    theirs = _theirs()
    chosen = list(wanted)
    unknown = [name for name in chosen if name not in _OURS and name not in theirs]
    if unknown:
        raise AuditError(f"there is no audit {unknown[0]!r}: {', '.join(names())}")
    return [_loaded(name, theirs.get(name)) for name in names() if not chosen or name in chosen]


def _theirs() -> dict[str, EntryPoint]:
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in _OURS}


def _loaded(name: str, theirs: EntryPoint | None) -> Audit:
    if theirs is None:
        module, _, attribute = _OURS[name].partition(":")
        found = getattr(import_module(module), attribute)
    else:
        try:
            found = theirs.load()
        except Exception as error:
            raise AuditError(f"the audit {name!r} ({theirs.value}) cannot be imported: {error}") from error
    if not isinstance(found, Audit) or found.name != name:
        raise AuditError(f"the entry point {name!r} is no audit of that name")
    return found
