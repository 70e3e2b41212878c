"""What the engine was given last, so that a change hands over what is different and not everything.

Comparing thousands of rows takes a while and happens in a thread (`prepare`); what comes of it is handed to the engine
on the event loop, where only the change costs time (`give`). What the engine refuses counts as not given, so it is
tried again with the next change. Where it is in doubt what the engine has, that is forgotten, and the next hand-over
is whole.
"""

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import structlog

from sterna_broker.configuration.compiling import Rows, inherited, rows
from sterna_broker.configuration.objects import ObjectSet

_log = structlog.get_logger(part="configuration")

# Takes a configuration, or what is different (JSON), and answers with JSON of what changed and what could not.
Configure = Callable[[str], str]

# The engine's word for what it refuses, by sort of rows.
_WORDS = {"queues": "queue", "topics": "topic", "durables": "durable"}

_Row = dict[str, Any]
_Given = dict[str, dict[Hashable, _Row]]


@dataclass(frozen=True)
class Prepared:
    """A hand-over that only waits for the event loop. `is_news`: it is not what was handed over last."""

    text: str
    whole: bool
    rows: _Given
    inherited: str
    removed: dict[str, list[_Row]]
    discarded: frozenset[tuple[str, Hashable]]
    is_news: bool = True
    warnings: tuple[str, ...] = ()


class Handover:
    """See the module."""

    def __init__(self, configure: Configure, reconfigure: Configure | None = None) -> None:
        self._configure = configure
        self._reconfigure = reconfigure
        self._given: _Given | None = None
        # What the engine was asked to make so, whether or not it took all of it.
        self._asked: _Given | None = None
        self._inherited = ""
        # What the engine has deleted by itself since the last hand-over; a comparison may be under way meanwhile.
        self._discarded: frozenset[tuple[str, Hashable]] = frozenset()
        # What is known already of bridges that dangle: each is said once.
        self._warned: tuple[str, ...] = ()

    def prepare(self, objects: ObjectSet) -> Prepared:
        """Compiles and compares; for a thread, while nothing is given meanwhile."""
        whole, inheritance = rows(objects), inherited(objects)
        keyed = {sort: {_key(sort, row): row for row in whole[sort]} for sort in whole}
        given, discarded, warnings = self._given, self._discarded, tuple(objects.bridge_warnings)
        if given is None or self._reconfigure is None:
            return Prepared(json.dumps(whole), True, keyed, inheritance, {}, discarded, warnings=warnings)
        changes: dict[str, Any] = {"inherited": inheritance != self._inherited}
        removed = {}
        for sort, wanted in keyed.items():
            before = {key: row for key, row in given.get(sort, {}).items() if (sort, key) not in discarded}
            if sort == "bridges":
                if wanted != before:
                    changes[sort] = list(wanted.values())
                continue
            if different := [row for key, row in wanted.items() if before.get(key) != row]:
                changes[sort] = different
            if sort in _WORDS and (gone := [row for key, row in before.items() if key not in wanted]):
                removed[sort] = gone
        changes["removed"] = {
            sort: [{"name": row["name"], "client_id": row.get("client_id", "")} for row in gone]
            for sort, gone in removed.items()
        }
        is_news = bool(discarded) or inheritance != self._inherited or keyed != self._asked
        return Prepared(json.dumps(changes), False, keyed, inheritance, removed, discarded, is_news, warnings)

    def give(self, prepared: Prepared) -> Rows:
        """Hands over; what the engine says of it, with the rows that it refuses under `refused`.

        Raises:
            EngineError: it took nothing.
        """
        hand = self._configure if prepared.whole or self._reconfigure is None else self._reconfigure
        self.forget()
        asked = prepared.rows
        answer: Rows = json.loads(hand(prepared.text))
        refused = {(row["kind"], row["name"]) for row in answer.get("refused", [])}
        if refused:
            # Going through thousands of rows is left out where it would find nothing, which is nearly always.
            asked = {sort: dict(taken) for sort, taken in prepared.rows.items()}
        for sort, word in _WORDS.items() if refused else ():
            taken = prepared.rows[sort]
            for key in [key for key, row in taken.items() if (word, row["name"]) in refused]:
                del taken[key]
        # A queue that could not go is a dynamic one now; a durable is still there, and has to be removed again.
        for row in prepared.removed.get("durables", []):
            if ("durable", row["name"]) in refused:
                prepared.rows["durables"][_key("durables", row)] = row
        self._given, self._asked, self._inherited = prepared.rows, asked, prepared.inherited
        self._discarded -= prepared.discarded
        for warning in prepared.warnings:
            if warning not in self._warned:
                _log.warning("bridge_dangling", problem=warning)
        self._warned = prepared.warnings
        return answer

    def forget(self) -> None:
        """What the engine has is not known: the next hand-over is whole."""
        self._given = self._asked = None

    def discard(self, word: str, name: str, client_id: str = "") -> None:
        """The engine has deleted something ("queue", "topic", "durable") by itself."""
        for sort, own in _WORDS.items():
            if own == word:
                self._discarded |= {(sort, _key(sort, {"name": name, "client_id": client_id}))}


def _key(sort: str, row: _Row) -> Hashable:
    if sort == "durables":
        return row["client_id"], row["name"]
    return str(row["kind"] if sort == "temporaries" else row["name"])
