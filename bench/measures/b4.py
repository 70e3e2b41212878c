"""B4: one producer and one consumer of the same queue at once, in processes of their own."""

from bench.results import Measured
from bench.rig import Rig, median, run_pair

QUEUE = "bench.both"
WINDOW = 4_000


def measure(rig: Rig) -> list[Measured]:
    """The slower of the two sides, in messages a second."""
    count = rig.scaled(300_000)
    runs = []
    for _ in range(rig.repeats):
        with rig.broker() as broker:
            both = {"queue": QUEUE, "count": count}
            runs.append(run_pair(broker, both, {**both, "window": WINDOW}))
    details = {
        "sent": [round(run["sent"]["rate"]) for run in runs],
        "received": [round(run["received"]["rate"]) for run in runs],
        "sender_cpu_us": [run["sent"]["cpu_us"] for run in runs],
        "receiver_cpu_us": [run["received"]["cpu_us"] for run in runs],
        "broker_cpu_us": [run["broker_cpu_us"] for run in runs],
        "messages": count,
        "window": WINDOW,
        "body_bytes": 1_024,
    }
    return [Measured("B4", median([min(run["sent"]["rate"], run["received"]["rate"]) for run in runs]), details)]
