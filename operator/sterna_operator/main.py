"""The command `sterna-operator`: `run`, and `plan -f FILE`."""

import argparse
import asyncio
import logging
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

import structlog
from sterna._grpc_experiments import choose_experiments

from sterna_operator.settings import OperatorSettings, SettingsError

_PREFIX = "STERNA_OPERATOR_"


def main() -> NoReturn:
    """The command. Does not return: everything is closed by then, and grpcio's threads need not be waited for.

    Now and then they keep an interpreter from ending, and an operator that should be replaced would stay.
    """
    choose_experiments()
    status = command(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def command(arguments: list[str]) -> int:
    """Runs the command; the exit status."""
    # Not when this module is imported: they import grpc, which only `main` says how to run.
    from sterna_operator.planning import plan_files
    from sterna_operator.running import StartError, run

    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        settings = _settings(given)
    except (SettingsError, ValueError) as error:
        parser.error(str(error))
    _set_up_logs(settings.log_format, to_stderr=given.command == "plan")
    try:
        if given.command == "plan":
            return asyncio.run(plan_files(settings, given.file, given.namespace))
        return asyncio.run(run(settings))
    except StartError as error:
        print(f"sterna-operator: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("sterna-operator", description="Looks after Sterna's objects in Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="look after all objects, as the leader or a standby")
    planning = commands.add_parser("plan", help="show what would be done for manifests; changes nothing")
    planning.add_argument("-f", "--file", type=Path, action="append", required=True, help="a file of manifests")
    planning.add_argument("-n", "--namespace", default="default", help="for manifests that name none")
    for command in (running, planning):
        for one in fields(OperatorSettings):
            if one.name == "namespaces":
                command.add_argument("--namespaces", help="look after these alone, comma between")
            else:
                command.add_argument(f"--{one.name.replace('_', '-')}", metavar="VALUE")
    return parser


def _settings(given: argparse.Namespace) -> OperatorSettings:
    """From flags, then environment, then defaults."""
    values: dict[str, object] = {}
    for one in fields(OperatorSettings):
        text = getattr(given, one.name, None) or os.environ.get(f"{_PREFIX}{one.name.upper()}")
        if text is None:
            continue
        if one.name in ("namespaces", "allowed_etcd_endpoints"):
            values[one.name] = tuple(name.strip() for name in text.split(",") if name.strip())
        elif one.type is float or one.type is int:
            values[one.name] = one.type(text)
        elif one.name in ("kubeconfig", "ready_file"):
            values[one.name] = Path(text)
        else:
            values[one.name] = text
    if "kubeconfig" not in values and (path := os.environ.get("KUBECONFIG")):
        values["kubeconfig"] = Path(path)
    return OperatorSettings(**values)  # type: ignore[arg-type]


def _set_up_logs(form: str, *, to_stderr: bool) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if to_stderr else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr if to_stderr else sys.stdout),
    )


if __name__ == "__main__":
    main()
