"""What a command prints: rows as a table, JSON, JSON lines or YAML, on stdout and nothing else there.

A command makes plain rows (dictionaries of JSON values) and says which columns a table shows; the format decides the
rest. `Printer` takes rows one by one, so that a command that follows a queue prints each as it comes.
"""

import enum
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

Row = Mapping[str, Any]

# Texts are not shortened below this: less says nothing.
_TEXT_LEAST = 4
# A list's column gets at least its longest word, which may be a number, but no more for that than this.
_LIST_LEAST_MAX = 32
# What the last column of a table gets at least that is printed while rows still come.
_LAST_LEAST = 20
# A terminal takes these for commands, and whoever sent a message wrote its text.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}


class Format(enum.StrEnum):
    """The forms that `-o` offers."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, and where its value stands in a row (a dotted path) or how it is made.

    `width` is for tables that are printed while rows still come, and cannot wait for the widest; the last column has
    what is left. A terminal that is too narrow does without the columns of the highest `rank` first; those of rank 0
    stay. `is_word`: it is one of a few words of ours, which say nothing when cut; names and contents are cut before.
    `is_list`: its value is a list of texts, which stand one below the other where the row has no room for all.
    """

    title: str
    value: str | Callable[[Row], Any]
    align: Literal["left", "right"] = "left"
    width: int = 12
    rank: int = 0
    is_word: bool = False
    is_list: bool = False

    def text(self, row: Row) -> str:
        """The cell's text."""
        return "; ".join(self.items(row))

    def items(self, row: Row) -> list[str]:
        """The texts of the cell: one, if it is no list."""
        found = at(row, self.value) if isinstance(self.value, str) else self.value(row)
        return [_cell(one) for one in found] if self.is_list else [_cell(found)]

    def lines(self, row: Row, room: int) -> str:
        """The cell's text in as many lines as it takes."""
        text = self.text(row)
        if not self.is_list or _fits(text, room):
            return text
        return "\n".join(line for item in self.items(row) for line in _wrapped(item, room))


@dataclass
class Printer:
    """Prints rows in a format.

    Args:
        format: how.
        columns: what a table shows.
        single: the answer is one thing, not a list: JSON has an object where it would have a list of one.
        streaming: rows are shown as they come; tables are then laid out without knowing what follows.
    """

    format: Format
    columns: Sequence[Column]
    single: bool = False
    streaming: bool = False
    output: TextIO = field(default_factory=lambda: sys.stdout)
    count: int = field(default=0, init=False)
    _rows: list[Row] = field(default_factory=list, init=False)
    _laid: list[tuple[Column, int]] = field(default_factory=list, init=False)

    def add(self, row: Row) -> None:
        """Print a row now, or keep it until `close` where the format needs all."""
        if self.format is Format.JSONL:
            self._write(_json(row) + "\n")
        elif self.format is Format.YAML:
            self._write(("---\n" if self.count else "") + _yaml(row))
        elif self.streaming and self.format is Format.TABLE:
            self._stream_line(row)
        elif self.streaming:
            self._write((",\n  " if self.count else "[\n  ") + _json(row))
        else:
            self._rows.append(row)
        self.count += 1

    def close(self) -> None:
        """Print what was kept."""
        if self.format is Format.JSON:
            if self.streaming:
                self._write("\n]\n" if self.count else "[]\n")
            elif self.single and len(self._rows) == 1:
                self._write(json.dumps(self._rows[0], indent=2, ensure_ascii=False) + "\n")
            else:
                self._write(json.dumps(self._rows, indent=2, ensure_ascii=False) + "\n")
        elif self.format is Format.TABLE and not self.streaming:
            self._table()

    def _write(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()

    def _stream_line(self, row: Row) -> None:
        if self.count == 0:
            # A terminal is as wide as it is; a pipe has all the room that a row needs.
            width = shutil.get_terminal_size().columns if self.output.isatty() else 0
            self._laid = _layout(self.columns, width)
            self._write(self._line([column.title for column, _ in self._laid]))
        self._write(self._line([column.text(row) for column, _ in self._laid]))

    def _line(self, cells: Sequence[str]) -> str:
        is_cut = self.output.isatty()
        placed = []
        for (column, room), cell in zip(self._laid, cells, strict=True):
            shown = _shortened(cell, room) if is_cut and column.align == "left" else cell
            placed.append(shown.rjust(room) if column.align == "right" else shown.ljust(room))
        return "  ".join(placed).rstrip() + "\n"

    def _table(self) -> None:
        from rich.console import Console
        from rich.table import Table

        # A terminal is as wide as it is; a pipe has all the room that the longest row needs.
        console = Console(file=self.output, highlight=False, width=None if self.output.isatty() else 10_000)
        table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True, padding=(0, 2, 0, 0))
        rooms = [_width(column, self._rows) for column in self.columns]
        leasts = [_least(column, self._rows) for column in self.columns]
        columns = _fitting(self.columns, rooms, leasts, console.width)
        for column, room in columns:
            table.add_column(column.title, justify=column.align, overflow="ellipsis", no_wrap=True, width=room)
        for row in self._rows:
            table.add_row(*[_literal(column.lines(row, room)) for column, room in columns])
        console.print(table, soft_wrap=False)


def print_rows(rows: Iterable[Row], columns: Sequence[Column], format: Format, *, single: bool = False) -> None:  # noqa: A002 - the option's own name
    """Print all rows at once."""
    printer = Printer(format, columns, single=single)
    for row in rows:
        printer.add(row)
    printer.close()


def at(row: Row, path: str) -> Any:
    """The value at a dotted path, None where the path ends early."""
    found: Any = row
    for step in path.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    return found


def camel_keys(row: Row) -> dict[str, Any]:
    """Fields of ours as JSON has them everywhere, `oldestMs` for `oldest_ms`, at every depth."""
    return {_camel(key): _camel_within(value) for key, value in row.items()}


def _camel_within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return camel_keys(value)
    return [_camel_within(one) for one in value] if isinstance(value, list | tuple) else value


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(other.capitalize() for other in others)


def _width(column: Column, rows: Sequence[Row]) -> int:
    from rich.cells import cell_len

    return max([len(column.title), *(cell_len(column.text(row)) for row in rows)])


def _least(column: Column, rows: Sequence[Row]) -> int:
    from rich.cells import cell_len

    if not column.is_list:
        return _TEXT_LEAST
    words = [word for row in rows for item in column.items(row) for word in _wrapped(item, 0)]
    return min(max(map(cell_len, [column.title, *words])), _LIST_LEAST_MAX)


def _fitting(
    columns: Sequence[Column], rooms: Sequence[int], leasts: Sequence[int], width: int
) -> list[tuple[Column, int]]:
    """The columns that a table of this width has room for, and how many cells each gets of those that it would take.

    As far as ranks allow, each has all of them. Then texts get fewer: a number is whole or it is wrong, of a text its
    beginning will do.
    """
    kept = list(zip(columns, rooms, strict=True))
    least = dict(zip(columns, leasts, strict=True))

    def missing() -> int:
        return sum(room for _, room in kept) + 2 * (len(kept) - 1) - width

    def cuttable(index: int) -> bool:
        column, room = kept[index]
        return room > least[column]

    while missing() > 0 and any(column.rank for column, _ in kept):
        # Of those of one rank the last goes first.
        kept.remove(max(reversed(kept), key=lambda one: one[0].rank))
    for is_word in (False, True):
        texts = [index for index, (one, _) in enumerate(kept) if one.align == "left" and one.is_word is is_word]
        while missing() > 0 and (texts := list(filter(cuttable, texts))):
            widest = max(texts, key=lambda index: kept[index][1])
            column, room = kept[widest]
            kept[widest] = column, room - 1
    return kept


def _layout(columns: Sequence[Column], width: int) -> list[tuple[Column, int]]:
    """How a table is laid out before its rows are known, in so many cells; 0: as wide as its columns say.

    The last column has what the others leave, and as many cells as a row needs where nothing bounds them.
    """
    wanted = [column.width for column in columns[:-1]]
    if not width:
        return list(zip(columns, [*wanted, 0], strict=True))
    *others, (last, room) = _fitting(columns, [*wanted, _LAST_LEAST], [_TEXT_LEAST] * len(columns), width)
    left = width - sum(one + 2 for _, one in others)
    return [*others, (last, max(room, left))]


def _wrapped(item: str, room: int) -> list[str]:
    """One text of a list in as many lines as it takes, broken between words; all but the first are indented."""
    first, *others = item.split(" ")
    lines = [first]
    for word in others:
        longer = f"{lines[-1]} {word}"
        if _fits(longer, room):
            lines[-1] = longer
        else:
            lines.append(f"  {word}")
    return lines


def _fits(text: str, room: int) -> bool:
    from rich.cells import cell_len

    return cell_len(text) <= room


def _shortened(text: str, room: int) -> str:
    """A text in so many cells, some of which take two."""
    from rich.cells import set_cell_size

    return text if _fits(text, room) else set_cell_size(text, room - 1) + "…"


def _literal(text: str) -> Any:
    """Text that rich takes as it is: names may hold what looks like its markup."""
    from rich.text import Text

    return Text(text)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
        case str():
            return value.translate(_CONTROLS)
        case _:
            return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _yaml(row: Row) -> str:
    import io

    from ruamel.yaml import YAML

    writer = YAML()
    writer.default_flow_style = False
    writer.width = 4_096
    text = io.StringIO()
    writer.dump(_plain(row), text)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
