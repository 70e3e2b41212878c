"""B7: raw frames of 64 persistent messages, pipelined: what the broker takes when the client costs next to nothing.

The client writes what its window has room for as one batch of frames, as the SDK does. Beside it stand two more rates,
in turn with the first: one frame in a batch, where a call of gRPC for every 64 messages is most of the work; and the
same client against a server that keeps nothing (`bench.sink`). Two processors are mostly gRPC's, so the share of what
it leaves says more than the rate.
"""

import subprocess
import sys
from typing import Any

from bench.raw import BATCH_FRAMES, FRAME_MESSAGES
from bench.results import Measured
from bench.rig import Client, Rig, costs, median, run_client

QUEUE = "bench.raw"
WINDOW = 8_192


def measure(rig: Rig) -> list[Measured]:
    """Messages confirmed a second."""
    load = {"queue": QUEUE, "count": rig.scaled(640_000), "window": WINDOW, "warm_up": rig.scaled(64_000)}
    batched, alone = {**load, "batch_frames": BATCH_FRAMES}, {**load, "batch_frames": 1}
    runs, single, nothing_kept = [], [], []
    with rig.broker() as broker:
        for _ in range(rig.repeats):
            runs.append(run_client(broker, "raw", **batched))
            single.append(run_client(broker, "raw", **alone)["rate"])
            nothing_kept.append(_against_sink(batched))
    rate, transport = median([run["rate"] for run in runs]), median(nothing_kept)
    details = {
        "runs": [round(run["rate"]) for run in runs],
        **costs(runs),
        "frame_messages": FRAME_MESSAGES,
        "frames_in_a_batch_max": BATCH_FRAMES,
        "window": WINDOW,
        "messages": load["count"],
        "body_bytes": 1_024,
        "one_frame_in_a_batch_rates": [round(one) for one in single],
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
