"""`sterna apply`: make a broker's resources as manifests describe them; `sterna diff`: what that would change."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sterna.cli import options
from sterna.cli.exits import Exit, complain, describe, usage
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.errors import LimitExceededError
from sterna.inventory import Applied, Change

EXAMPLES = options.examples("sterna apply -f queues.yaml", "sterna apply -f manifests/ --dry-run", "sterna apply -f -")
DIFF_EXAMPLES = options.examples("sterna diff -f queues.yaml", "sterna diff -f manifests/ -o jsonl")

_COLUMNS = (
    Column("KIND", "kind", is_word=True),
    Column("NAME", "name"),
    Column("CHANGE", options.change_shown, is_word=True),
    Column("FIELDS", "changes", is_list=True),
)
_SUFFIXES = (".yaml", ".yml", ".json")


Files = Annotated[
    list[str],
    typer.Option("--file", "-f", metavar="FILE", help="A file of manifests, a folder of them, or - for stdin."),
]


def apply(
    files: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Create or change resources: the manifests of all files together, and none when one is refused.

    What a cluster cannot change in one step is applied file by file. Ends with 3 when some were refused, with 1 when
    all were.
    """
    applied = run_loop(_apply(_all_texts(files), server, timeout, dry_run=dry_run))
    accepted = [one for one in applied if one.change is not Change.REFUSED]
    if accepted or output is not Format.TABLE:
        print_rows([_row(one, dry_run=dry_run) for one in accepted], _COLUMNS, output)
    _tell_warnings(accepted)
    if dry_run:
        complain("dry run: nothing was changed")
    _end_with_refusals(applied)


def diff(
    files: Files,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show what `sterna apply` would change, field by field, and change nothing.

    Ends with 0 when all is as described, with 7 when something would change; when some are refused with 3, when all are
    with 1.
    """
    planned = run_loop(_apply(_all_texts(files), server, timeout, dry_run=True))
    changed = [one for one in planned if one.change in (Change.CREATED, Change.CONFIGURED)]
    if changed or output is not Format.TABLE:
        print_rows([_row(one, dry_run=True) for one in changed], _COLUMNS, output)
    _tell_warnings(changed)
    _end_with_refusals(planned)
    if changed:
        raise typer.Exit(Exit.CHECK_WARNING)
    complain("nothing would change")


def _tell_warnings(applied: list[Applied]) -> None:
    """Tells what does not hold at once of what is taken."""
    for one in applied:
        for warning in one.warnings:
            complain(f"warning: {one.kind} {one.name}: {warning}")


def _end_with_refusals(applied: list[Applied]) -> None:
    """Tells of what was refused, and ends with that, if anything was."""
    refused = [one for one in applied if one.change is Change.REFUSED]
    for one in refused:
        complain(_refusal(one))
    if refused:
        raise typer.Exit(Exit.ERROR if len(refused) == len(applied) else Exit.PARTIAL)


def _all_texts(files: list[str]) -> dict[str, str]:
    """All manifests that `-f` names, each file and stdin once."""
    texts: dict[str, str] = {}
    for name in dict.fromkeys(files):
        texts.update(_texts(name))
    return texts


def _texts(name: str) -> list[tuple[str, str]]:
    """The manifests that `-f` names, with what errors call them."""
    if name == "-":
        return [("stdin", sys.stdin.read())]
    path = Path(name)
    if path.is_dir():
        paths = sorted(one for one in path.iterdir() if _is_manifest(one))
        if not paths:
            raise usage(f"{name} holds no manifests", f"files of manifests end in {', '.join(_SUFFIXES)}")
        for one in paths:
            if not one.is_file():
                raise usage(f"{one} is no file", "correct the link or remove it, or name the files")
    else:
        paths = [path]
    return [(str(one), _read(one)) for one in paths]


def _is_manifest(path: Path) -> bool:
    """As a broker has it of its folder: editors keep what is no manifest under names with a dot."""
    return path.suffix in _SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read {path}", "name a readable file of manifests, a folder, or -") from error


async def _apply(texts: dict[str, str], server: Server, timeout: float, *, dry_run: bool) -> list[Applied]:
    async with server.admin(timeout=timeout) as client:
        try:
            return await client.apply(texts, dry_run=dry_run)
        except LimitExceededError:
            if len(texts) == 1:
                raise
        applied: list[Applied] = []
        for source, text in texts.items():
            applied += await client.apply(text, dry_run=dry_run, source=source)
        return applied


def _row(one: Applied, *, dry_run: bool) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "change": one.change.value,
        "changes": list(one.changes),
        "warnings": list(one.warnings),
        "dryRun": dry_run,
    }


def _refusal(one: Applied) -> str:
    what = f"{one.kind} {one.name}".strip() or "a manifest"
    if one.error is None:
        return describe("error", f"{what} was refused")
    error = one.error
    about = f"{error.subject}: " if error.subject and error.subject not in error.cause else ""
    return describe(f"error {error.code.name}", f"{what}: {about}{error.cause}", error.remedy)
