"""B5: sixteen producers that await each persistent send: on sixteen connections, and as tasks on one."""

from bench.results import Measured
from bench.rig import Rig, costs, median, run_client

QUEUE = "bench.sixteen"
PRODUCERS = 16


def measure(rig: Rig) -> list[Measured]:
    """Messages confirmed a second, both ways."""
    count, warm_up = rig.scaled(40_000), rig.scaled(4_000)
    results = []
    for line, how in (("B5-connections", {"connections": PRODUCERS}), ("B5-tasks", {"tasks": PRODUCERS})):
        with rig.broker() as broker:
            runs = [
                run_client(broker, "send", queue=QUEUE, count=count, warm_up=warm_up, **how) for _ in range(rig.repeats)
            ]
        details = {
            "runs": [round(run["rate"]) for run in runs],
            "latency_us": runs[-1]["latency_us"],
            "producers": PRODUCERS,
            "body_bytes": 1_024,
            **costs(runs),
        }
        results.append(Measured(line, median([run["rate"] for run in runs]), details))
    return results
