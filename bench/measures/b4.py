"""B4: one producer and one consumer of the same queue at once, in processes of their own."""

from bench.results import Measured
from bench.rig import Client, Rig, median

QUEUE = "bench.both"
WINDOW = 4_000


def measure(rig: Rig) -> list[Measured]:
    """The slower of the two sides, in messages a second."""
    runs = [_once(rig) for _ in range(rig.repeats)]
    details = {
        "sent": [round(sent) for sent, _ in runs],
        "received": [round(received) for _, received in runs],
        "window": WINDOW,
        "body_bytes": 1_024,
    }
    return [Measured("B4", median([min(run) for run in runs]), details)]


def _once(rig: Rig) -> tuple[float, float]:
    count = rig.scaled(300_000)
    with rig.broker() as broker:
        receiver = Client("receive", url=broker.url, queue=QUEUE, count=count)
        sender = Client("send_soon", url=broker.url, queue=QUEUE, count=count, window=WINDOW)
        receiver.go()
        sender.go()
        return float(sender.result()["rate"]), float(receiver.result()["rate"])
