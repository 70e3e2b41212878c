"""`sterna explain`: what an error means, when it comes, and what to do about it. Needs no broker."""

import difflib
import re
from typing import Annotated, Any

import typer

from sterna import errors
from sterna.cli import options
from sterna.cli.exits import Exit, exit_code_of, is_unreachable, usage
from sterna.cli.explanations import CLASSES, CODES, Explanation
from sterna.cli.output import Column, Format, print_rows

EXAMPLES = options.examples(
    "sterna explain DESTINATION_FULL", "sterna explain TransactionInDoubtError", "sterna explain"
)

_COLUMNS = (Column("ERROR", "name"), Column("MEANS", "means"))

#: What the command line itself calls errors of the SDK.
_SHOWN_AS = {"UNREACHABLE": "UnreachableError"}


def explain(
    error: Annotated[str, typer.Argument(metavar="CODE", help="Its code, or its class; without, all are listed.")] = "",
    output: options.Output = Format.TABLE,
) -> None:
    """Say what an error means, when it comes, and what to do about it."""
    if not error:
        print_rows([row(name) for name in (*CODES, *CLASSES)], _COLUMNS, output)
        return
    found = row(_meant(error))
    if output is Format.TABLE:
        typer.echo(_text(found))
    else:
        print_rows([found], _COLUMNS, output, single=True)


def row(name: str) -> dict[str, Any]:
    """All that is known of the error of that code, or of that class."""
    explanation: Explanation = CODES[name] if name in CODES else CLASSES[name]
    kind = errors.BY_CODE[errors.ErrorCode[name]] if name in CODES else getattr(errors, name)
    return {
        "name": name,
        "class": kind.__name__,
        "exitCode": int(_exit_code(name, kind)),
        "means": explanation.means,
        "comes": list(explanation.comes),
        "do": list(explanation.do),
    }


def _exit_code(name: str, kind: type[errors.SternaError]) -> Exit:
    if is_unreachable(kind):
        return Exit.UNREACHABLE
    return exit_code_of(name if name in CODES else kind.default_code.name)


def _meant(text: str) -> str:
    """The code or class that was typed: in capitals or not, with hyphens or without, with "Error" behind it or not."""
    names = {_letters(name): name for name in (*CODES, *CLASSES)}
    names |= {_letters(shown): name for shown, name in _SHOWN_AS.items()}
    # By the class of a code, too: it is what a traceback shows.
    for code in CODES:
        names.setdefault(_letters(errors.BY_CODE[errors.ErrorCode[code]].__name__), code)
    for typed in (_letters(text), _letters(f"{text}Error")):
        if typed in names:
            return names[typed]
    close = difflib.get_close_matches(_letters(text), names, n=1)
    meant = f"did you mean {names[close[0]]}? " if close else ""
    raise usage(f"'{text}' is no error of Sterna", f"{meant}`sterna explain` lists all")


def _letters(text: str) -> str:
    return re.sub(r"[\s_.-]", "", text).lower()


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['name']}: {found['means']}", "", "It comes when:"]
    lines += [f"  - {one}" for one in found["comes"]]
    lines += ["", "What to do:", *(f"  - {one}" for one in found["do"])]
    return "\n".join([*lines, "", f"In Python: sterna.errors.{found['class']}. Exit code: {found['exitCode']}."])
