"""B8: how much memory a queued message costs the broker once its payload is no longer cached."""

from sterna._loop import run as run_loop

from bench.broker import MANIFESTS
from bench.filling import fill
from bench.results import Measured
from bench.rig import Rig

QUEUE = "bench.deep"
CACHE_BYTES = 32 * 1024 * 1024
# Both sizes are far beyond the cache, so that the difference between them is what a message costs without it.
SMALL = 200_000
LARGE = 1_200_000

_BROKER = f"""\
---
apiVersion: sterna.dev/v1alpha1
kind: Broker
metadata: {{name: bench}}
spec: {{log: {{cacheBytes: {CACHE_BYTES}}}}}
"""


def measure(rig: Rig) -> list[Measured]:
    """Resident memory's growth from the small backlog to the large one, a message."""
    small, large = (SMALL, LARGE) if not rig.quick else (SMALL, 2 * SMALL)
    with rig.broker(MANIFESTS + _BROKER) as broker:
        empty = broker.resident_bytes()
        run_loop(fill(broker, {QUEUE: small}))
        before = broker.resident_bytes()
        run_loop(fill(broker, {QUEUE: large - small}))
        after = broker.resident_bytes()
    details = {
        "resident_bytes": {"empty": empty, f"{small}": before, f"{large}": after},
        "cache_bytes": CACHE_BYTES,
        "body_bytes": 1_024,
        "queues": 1,
    }
    return [Measured("B8", (after - before) / (large - small), details)]
