"""`python -m bench.ledgers`: B2 with a client's ledger beside B2 without, in turns, on the same machine.

No line of the benchmarks: it prints each pair, and the medians. A ledger may take a tenth of the rate at most.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench import machine
from bench.measures.b2 import QUEUE, WINDOW
from bench.rig import Rig, median, run_client


def main() -> int:
    """Measure, and print one line of JSON for each pair and for all."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledgers", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="how many")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: a look, not a figure")
    options = parser.parse_args()
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="sterna-bench-") as folder:
        rig = Rig(Path(folder), quick=options.quick)
        settings = {"queue": QUEUE, "count": rig.scaled(400_000), "window": WINDOW, "warm_up": rig.scaled(40_000)}
        for number in range(options.pairs):
            with rig.broker() as broker:
                ledger = str(Path(folder) / f"ledger.{number}")
                # Each of both is the first in its turn.
                first, second = (None, ledger) if number % 2 else (ledger, None)
                one = run_client(broker, "send_soon", ledger=first, **settings)
                other = run_client(broker, "send_soon", ledger=second, **settings)
            without, with_ledger = (one, other) if number % 2 else (other, one)
            pairs.append((without, with_ledger))
            _say(number + 1, without, with_ledger)
    share = median([with_ledger["rate"] / without["rate"] for without, with_ledger in pairs])
    rates = [median([pair[index]["rate"] for pair in pairs]) for index in (0, 1)]
    said = {"rate": round(rates[0]), "rate_with_ledger": round(rates[1]), "median_share": round(share, 3)}
    sys.stdout.write(json.dumps({**said, "load": machine.load()}) + "\n")
    return 0


def _say(number: int, without: dict[str, float], with_ledger: dict[str, float]) -> None:
    said = {
        "pair": number,
        "rate": round(without["rate"]),
        "rate_with_ledger": round(with_ledger["rate"]),
        "share": round(with_ledger["rate"] / without["rate"], 3),
        "cpu_us": without["cpu_us"],
        "cpu_us_with_ledger": with_ledger["cpu_us"],
        "load": machine.load(),
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
