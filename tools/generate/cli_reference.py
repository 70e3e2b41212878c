"""docs/reference/cli.md: every command with its options, defaults and examples, read off the application itself."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.generate.pages import write_printed

INPUTS = ("client/sterna/cli", "tools/generate/cli_reference.py")
OUTPUTS = ("docs/reference/cli.md",)

_HEAD = """\
# The `sterna` command

Made from the program's own help by `make generate`.

{epilog}

Completion for bash, zsh and fish is installed by `sterna --install-completion`. `STERNA_URL` names the broker where
`--server` does not.
"""


def make(root: Path) -> None:
    """Writes the page below `root`. In a process of its own: the application is the environment's, not this tool's."""
    write_printed(root / OUTPUTS[0], "tools.generate.cli_reference")


def page() -> str:
    """The whole page."""
    import typer
    from sterna.cli.application import EXIT_CODES, app

    group: Any = typer.main.get_command(app)
    parts = [_HEAD.format(epilog=EXIT_CODES)]
    for name in group.list_commands(None):
        parts.extend(_command(name, group.commands[name]))
    return "\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    if hasattr(command, "commands"):
        yield f"## sterna {name}\n\n{command.help}\n"
        for inner in command.list_commands(None):
            for part in _command(f"{name} {inner}", command.commands[inner]):
                yield part.replace("## ", "### ", 1) if part.startswith("## ") else part
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    prefix = command.context_settings.get("auto_envvar_prefix", "")
    options = [one for one in command.params if one.param_type_name == "option" and "--help" not in one.opts]
    usage = " ".join([f"sterna {name}", "[OPTIONS]", *(_argument(one) for one in arguments)])
    yield f"## sterna {name}\n\n{command.help}\n\n```\n{usage}\n```\n"
    if arguments:
        yield "| argument | |\n|---|---|"
        yield "\n".join(f"| `{_argument(one)}` | {_text(one.help)} |" for one in arguments) + "\n"
    if options:
        yield "| option | | default |\n|---|---|---|"
        yield "\n".join(_option(one, prefix) for one in options) + "\n"
    # The epilog is written for a terminal, a line each; here it is a block.
    lines = [line for line in (command.epilog or "").splitlines() if line.startswith("$ ")]
    yield "```console\n" + "\n".join(lines) + "\n```\n"


def _argument(argument: Any) -> str:
    name = f"{argument.metavar or argument.name.upper()}{'...' if argument.nargs != 1 else ''}"
    return name if argument.required else f"[{name}]"


def _option(option: Any, prefix: str) -> str:
    names = ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag else f" `{option.metavar or 'N'}`"
    default = option.default
    shown = "" if default in (None, "", False) or callable(default) or option.is_flag else f"`{_plain(default)}`"
    twin = f" (`{prefix}_{option.name.upper()}`)" if prefix else ""
    return f"| {names}{metavar} | {_text(option.help)}{twin} | {'required' if option.required else shown} |"


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _text(help_text: str | None) -> str:
    return (help_text or "").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
