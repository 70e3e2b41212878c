"""Which of grpc's experiments our own programs run with: the broker, the operator, the command, and the measurements.

From 1.80 on grpcio hands what a socket brings from thread to thread of its event engine before the event loop hears of
it: three wake-ups in each process that a message passes. Without these experiments the thread that polls tells the
event loop itself.

An entry point calls `choose_experiments` before anything imports grpc, which reads the variable as it is imported and
never again. The library does not: an application's process is not ours, and docs/sdk.md says how to set it there.
Nothing of grpc is imported here.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "GRPC_EXPERIMENTS"
VERBOSITY = "GRPC_VERBOSITY"

# What servers accept, what clients open, all other sockets, and the callbacks that the event loop is told by.
WITHOUT_EVENT_ENGINE = (
    "-event_engine_listener,-event_engine_client,-event_engine_for_all_other_endpoints,-event_engine_callback_cq"
)

# The first and the last grpcio, as (major, minor), that this was tried with. Before them Python had no event engine.
# After them there may be no such experiments: of one that it does not know grpc complains on stderr, at each import. A
# newer grpcio is added when tests/broker/test_grpc_experiments.py passes with it.
_TRIED = ((1, 80), (1, 85))

_RECORD = re.compile(r"grpcio-(\d+)\.(\d+)\b.*\.dist-info")


def choose_experiments() -> None:
    """Has grpc, once it is imported, run without its event engine's threads; if it is a grpcio that was tried.

    What the user has set counts, even the empty text, which is grpc's own way: nothing is added to it.

    It says errors alone: of a handshake that fails, by whoever has called, our own programs tell in their own words.
    """
    os.environ.setdefault(VERBOSITY, "ERROR")
    if VARIABLE in os.environ:
        return
    found = _grpcio()
    if found is not None and _TRIED[0] <= found <= _TRIED[1]:
        os.environ[VARIABLE] = WITHOUT_EVENT_ENGINE


def _grpcio() -> tuple[int, int] | None:
    """The installed grpcio, from the name of its record beside the package; None if there is no telling.

    Importlib's own way of asking loads so much that every command would start tens of milliseconds later.
    """
    spec = find_spec("grpc")
    if spec is None or spec.origin is None:
        return None
    names = (file.name for file in Path(spec.origin).parents[1].glob("grpcio-*"))
    found = [(int(match[1]), int(match[2])) for name in names if (match := _RECORD.fullmatch(name))]
    # Two are left behind by an installation that went wrong: which of them is the package's?
    return found[0] if len(found) == 1 else None
