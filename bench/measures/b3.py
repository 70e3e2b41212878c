"""B3: one consumer empties a backlog of a million persistent messages, each acknowledged durably."""

from sterna._loop import run as run_loop

from bench.filling import fill
from bench.results import Measured
from bench.rig import Rig, costs, run_client

QUEUE = "bench.backlog"
BACKLOG = 1_000_000


def measure(rig: Rig) -> list[Measured]:
    """Messages consumed a second, until the last acknowledgement is on disk."""
    count = rig.scaled(BACKLOG)
    with rig.broker() as broker:
        run_loop(fill(broker, {QUEUE: count}))
        run = run_client(broker, "receive", queue=QUEUE, count=count)
    details = {"messages": count, "seconds": run["seconds"], **costs([run]), "body_bytes": 1_024}
    return [Measured("B3", run["rate"], details)]
