"""B7: raw frames of 64 persistent messages, pipelined: what the broker takes when the client costs next to nothing."""

from bench.results import Measured
from bench.rig import Rig, costs, median, run_client

QUEUE = "bench.raw"
WINDOW = 8_192


def measure(rig: Rig) -> list[Measured]:
    """Messages confirmed a second."""
    count = rig.scaled(640_000)
    with rig.broker() as broker:
        runs = [
            run_client(broker, "raw", queue=QUEUE, count=count, window=WINDOW, warm_up=rig.scaled(64_000))
            for _ in range(rig.repeats)
        ]
    details = {
        "runs": [round(run["rate"]) for run in runs],
        **costs(runs),
        "frame_messages": 64,
        "window": WINDOW,
        "messages": count,
        "body_bytes": 1_024,
    }
    return [Measured("B7", median([run["rate"] for run in runs]), details)]
