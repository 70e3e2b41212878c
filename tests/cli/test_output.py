"""The forms of output: nothing but data, the same data in each."""

import io
import json
import re

import pytest
from ruamel.yaml import YAML
from sterna.cli.application import EXIT_CODES
from sterna.cli.exits import Exit
from sterna.cli.output import Column, Format, Printer, at

ROWS = [
    {"name": "orders", "held": {"messages": 1_234_567}, "static": True, "note": "two\nlines", "none": None},
    {"name": "[red]x[/red]", "held": {"messages": 0}, "static": False, "note": "", "none": None},
]
COLUMNS = (
    Column("NAME", "name"),
    Column("MESSAGES", "held.messages", "right"),
    Column("STATIC", "static"),
    Column("NOTE", lambda row: row["note"].upper()),
    Column("NONE", "none"),
)


def printed(format: Format, rows: list[dict[str, object]], *, single: bool = False, streaming: bool = False) -> str:  # noqa: A002
    output = io.StringIO()
    printer = Printer(format, COLUMNS, single=single, streaming=streaming, output=output)
    for row in rows:
        printer.add(row)
    printer.close()
    return output.getvalue()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []])
def test_json_is_a_list(rows: list[dict[str, object]], streaming: bool) -> None:
    assert json.loads(printed(Format.JSON, rows, streaming=streaming)) == rows


def test_json_of_one_thing_is_that_thing() -> None:
    assert json.loads(printed(Format.JSON, ROWS[:1], single=True)) == ROWS[0]


def test_json_lines_are_one_row_each() -> None:
    assert [json.loads(line) for line in printed(Format.JSONL, ROWS).splitlines()] == ROWS


def test_yaml_is_one_document_a_row() -> None:
    text = printed(Format.YAML, ROWS)
    assert list(YAML(typ="safe").load_all(text)) == ROWS


def test_a_table_shows_the_columns_and_takes_no_value_for_markup() -> None:
    header, first, second = printed(Format.TABLE, ROWS).splitlines()
    assert header.split() == ["NAME", "MESSAGES", "STATIC", "NOTE", "NONE"]
    assert first.split() == ["orders", "1,234,567", "yes", "TWO\\nLINES"]
    assert second.split() == ["[red]x[/red]", "0", "no"]


def test_a_streamed_table_prints_each_row_when_it_comes() -> None:
    output = io.StringIO()
    printer = Printer(Format.TABLE, COLUMNS, streaming=True, output=output)
    printer.add(ROWS[0])
    assert len(output.getvalue().splitlines()) == 2


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What is seen, without colours."""
        return re.sub(r"\x1b\[\d*m", "", self.getvalue()).splitlines()


STREAMED = (
    Column("FROM", "from", width=24),
    Column("MESSAGE", "id", width=28, rank=1),
    Column("TIMES", "times", "right", width=5),
    Column("BODY", "body"),
)
LONG = {"from": "queue:" + "o" * 40, "id": "ID:1", "times": 1_234_567, "body": "b" * 300}


@pytest.mark.parametrize(
    ("width", "titles"), [(200, ["FROM", "MESSAGE", "TIMES", "BODY"]), (80, ["FROM", "TIMES", "BODY"])]
)
def test_a_streamed_table_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, titles: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    printer = Printer(Format.TABLE, STREAMED, streaming=True, output=terminal)
    printer.add({**LONG, "times": 7})
    header, line = terminal.lines
    assert header.split() == titles
    assert len(line) == width
    assert line.startswith("queue:" + "o" * 17 + "…  ")
    assert line.endswith("b…")
    assert header.index("BODY") == line.index("bbb")
    printer.add(LONG)
    assert "1,234,567" in terminal.lines[2], "a number is whole or it is wrong"
    pipe = io.StringIO()
    Printer(Format.TABLE, STREAMED, streaming=True, output=pipe).add(LONG)
    assert "b" * 300 in pipe.getvalue()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_terminal_gets_no_commands_out_of_a_message(streaming: bool) -> None:
    terminal = Terminal()
    printer = Printer(Format.TABLE, (Column("BODY", "body"),), streaming=streaming, output=terminal)
    printer.add({"body": "\x1b]0;title\x07\x9b2J\ttab\r\n"})
    printer.close()
    assert terminal.lines[1].rstrip() == r"\x1b]0;title\x07\x9b2J\ttab\r\n"


def test_a_wide_table_in_a_pipe_is_not_cut() -> None:
    row = {**ROWS[0], "name": "n" * 300}
    assert "n" * 300 in printed(Format.TABLE, [row])


def test_a_path_that_ends_early_is_empty() -> None:
    assert at({"a": {"b": 1}}, "a.b") == 1
    assert at({"a": 5}, "a.b.c") is None


def test_a_narrow_terminal_loses_columns_by_rank_and_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    columns = (
        Column("NAME", "name"),
        Column("STATIC", "static", rank=1),
        Column("MESSAGES", "count", "right"),
        Column("NOTE", "note", rank=2),
    )
    row = {"name": "orders." * 5, "static": True, "count": 1_234_567_890, "note": "n"}
    terminal = Terminal()
    printer = Printer(Format.TABLE, columns, output=terminal)
    printer.add(row)
    printer.close()
    header, line = terminal.lines
    assert header.split() == ["NAME", "MESSAGES"]
    name, count = line.split()
    assert name.endswith("…")
    assert count == "1,234,567,890"
    assert len(line.rstrip()) <= 24


def test_a_narrow_terminal_cuts_names_and_no_word_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    columns = (
        Column("KIND", "kind", is_word=True),
        Column("NAME", "name"),
        Column("CHANGE", "change", is_word=True),
        Column("FIELDS", "fields"),
    )
    terminal = Terminal()
    printer = Printer(Format.TABLE, columns, output=terminal)
    printer.add(
        {
            "kind": "DurableSubscription",
            "name": "n" * 99,
            "change": "configured (dry run)",
            "fields": "spec.topic: a -> b",
        }
    )
    printer.close()
    _, line = terminal.lines
    assert line.startswith("DurableSubscription  nnnn")
    assert "…  configured (dry run)  spec" in line
    assert len(line.rstrip()) <= 60


def test_help_lists_every_exit_code() -> None:
    listed = {int(number) for number in re.findall(r"\d+", EXIT_CODES)}
    assert listed == {*(int(code) for code in Exit), 130, 143}
