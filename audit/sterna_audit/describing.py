"""The tables as docs/audits/schema.md has them: `python -m sterna_audit.describing` prints them.

A test holds that the document has exactly these.
"""

import sys

from sterna_audit import tables_of_events, tables_of_state
from sterna_audit.columns import Column


def described() -> dict[str, str]:
    """Each table's section by its title, in the schema's order."""
    found = {}
    for folder, tables in (("state", tables_of_state.TABLES), ("events", tables_of_events.TABLES)):
        for name, about, columns in tables:
            title = f"{folder}/{name}"
            found[title] = "\n".join(
                [
                    f"### `{title}`",
                    "",
                    about,
                    "",
                    "| column | type | |",
                    "|---|---|---|",
                    *map(_row, columns),
                ]
            )
    return found


def _row(column: Column) -> str:
    optional = ", may be missing" if column.is_nullable else ""
    person = ""
    if column.person is True:
        person = " **Personal.**"
    elif column.person:
        person = f" **Personal** where `{column.person}` is actor, user or client id."
    return f"| `{column.name}` | {column.kind}{optional} | {column.about}{'.' if person else ''}{person} |"


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(described().values()) + "\n")
