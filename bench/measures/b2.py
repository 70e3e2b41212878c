"""B2 and B2a: one producer with many persistent sends under way, by `send_soon` and by tasks that await each."""

from bench.results import Measured
from bench.rig import Rig, costs, median, run_client

QUEUE = "bench.pipelined"
WINDOW = 4_000
TASKS = 1_000


def measure(rig: Rig) -> list[Measured]:
    """Messages confirmed a second."""
    with rig.broker() as broker:
        count, warm_up = rig.scaled(400_000), rig.scaled(40_000)
        soon = [
            run_client(broker, "send_soon", queue=QUEUE, count=count, window=WINDOW, warm_up=warm_up)
            for _ in range(rig.repeats)
        ]
    with rig.broker() as broker:
        tasks = [
            run_client(broker, "send", queue=QUEUE, count=count // 2, tasks=TASKS, warm_up=warm_up // 2)
            for _ in range(rig.repeats)
        ]
    return [
        Measured(
            line,
            median([run["rate"] for run in runs]),
            {"runs": [round(run["rate"]) for run in runs], **costs(runs), **how},
        )
        for line, runs, how in (
            ("B2", soon, {"window": WINDOW, "messages": count, "body_bytes": 1_024}),
            ("B2a", tasks, {"tasks": TASKS, "messages": count // 2, "body_bytes": 1_024}),
        )
    ]
