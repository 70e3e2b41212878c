"""B6: non-persistent messages from one process through the broker to another, as fast as they go."""

from bench.results import Measured
from bench.rig import Rig, median, run_pair

QUEUE = "bench.volatile"
WINDOW = 4_000


def measure(rig: Rig) -> list[Measured]:
    """Messages received a second, from the first to the last."""
    count = rig.scaled(400_000)
    runs = []
    for _ in range(rig.repeats):
        with rig.broker() as broker:
            both = {"queue": QUEUE, "count": count}
            runs.append(run_pair(broker, both, {**both, "window": WINDOW, "delivery_mode": "NON_PERSISTENT"}))
    details = {
        "runs": [round(run["received"]["rate"]) for run in runs],
        "sender_cpu_us": [run["sent"]["cpu_us"] for run in runs],
        "receiver_cpu_us": [run["received"]["cpu_us"] for run in runs],
        "broker_cpu_us": [run["broker_cpu_us"] for run in runs],
        "messages": count,
        "window": WINDOW,
        "body_bytes": 1_024,
    }
    return [Measured("B6", median([run["received"]["rate"] for run in runs]), details)]
