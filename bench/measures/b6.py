"""B6: non-persistent messages from one process through the broker to another, as fast as they go."""

from bench.results import Measured
from bench.rig import Client, Rig, median

QUEUE = "bench.volatile"
WINDOW = 4_000


def measure(rig: Rig) -> list[Measured]:
    """Messages received a second, from the first to the last."""
    runs = [_once(rig) for _ in range(rig.repeats)]
    return [Measured("B6", median(runs), {"runs": [round(run) for run in runs], "window": WINDOW, "body_bytes": 1_024})]


def _once(rig: Rig) -> float:
    count = rig.scaled(400_000)
    with rig.broker() as broker:
        receiver = Client("receive", url=broker.url, queue=QUEUE, count=count)
        sender = Client(
            "send_soon", url=broker.url, queue=QUEUE, count=count, window=WINDOW, delivery_mode="NON_PERSISTENT"
        )
        receiver.go()
        sender.go()
        sender.result()
        return float(receiver.result()["rate"])
