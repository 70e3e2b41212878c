"""The entry point of `sterna`.

`--version` is answered before anything is imported, since scripts ask for it; all else goes through the typer
application of `application`. How grpc runs is chosen here, for `sterna broker` as well: it can be only before grpc is
imported.
"""

import sys


def main() -> None:
    """Run the `sterna` command with the arguments of the process, and exit."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from sterna._version import __version__

        sys.stdout.write(f"sterna {__version__}\n")
        return
    from sterna._grpc_experiments import choose_experiments

    choose_experiments()
    try:
        from sterna.cli.application import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"error: the command line needs the package {error.name}, which is not installed\n"
            "  remedy: pip install 'sterna[cli]'\n"
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
