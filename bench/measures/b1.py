"""B1: one producer that awaits each persistent send; how long a confirmation takes."""

from bench.results import Measured
from bench.rig import Rig, costs, median, run_client

QUEUE = "bench.one"


def measure(rig: Rig) -> list[Measured]:
    """The p50 of the confirmations, after a warm-up of a tenth."""
    with rig.broker() as broker:
        runs = [
            run_client(broker, "send", queue=QUEUE, count=rig.scaled(6_000), warm_up=rig.scaled(600))
            for _ in range(rig.repeats)
        ]
    details = {
        "runs_p50_us": [run["latency_us"]["p50"] for run in runs],
        "latency_us": runs[-1]["latency_us"],
        "rate": [round(run["rate"]) for run in runs],
        "body_bytes": 1_024,
        **costs(runs),
    }
    return [Measured("B1", median(details["runs_p50_us"]), details)]
