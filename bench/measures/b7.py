"""B7: raw frames of 64 persistent messages, pipelined: what the broker takes when the client costs next to nothing.

Beside it stands what the same client reaches against a server that keeps nothing (`bench.sink`), in turn with the
broker's runs: on a machine with two processors gRPC alone takes most of them, so the share says more than the rate.
"""

import subprocess
import sys
from typing import Any

from bench.results import Measured
from bench.rig import Client, Rig, costs, median, run_client

QUEUE = "bench.raw"
WINDOW = 8_192


def measure(rig: Rig) -> list[Measured]:
    """Messages confirmed a second."""
    load = {"queue": QUEUE, "count": rig.scaled(640_000), "window": WINDOW, "warm_up": rig.scaled(64_000)}
    runs, nothing_kept = [], []
    with rig.broker() as broker:
        for _ in range(rig.repeats):
            runs.append(run_client(broker, "raw", **load))
            nothing_kept.append(_against_sink(load))
    rate, transport = median([run["rate"] for run in runs]), median(nothing_kept)
    details = {
        "runs": [round(run["rate"]) for run in runs],
        **costs(runs),
        "frame_messages": 64,
        "window": WINDOW,
        "messages": load["count"],
        "body_bytes": 1_024,
        "nothing_kept_rates": [round(one) for one in nothing_kept],
        "share_of_nothing_kept": round(rate / transport, 2),
    }
    return [Measured("B7", rate, details)]


def _against_sink(load: dict[str, Any]) -> float:
    server = subprocess.Popen([sys.executable, "-m", "bench.sink"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        client = Client("raw", url=f"sterna://{server.stdout.readline().strip()}", **load)
        client.go()
        return float(client.result()["rate"])
    finally:
        server.terminate()
        server.wait(10)
