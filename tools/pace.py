"""How slow the machine is now, beside the one on which the budgets of CI were measured.

A machine that shares its processors with others is at times three times as slow for an hour, and none of its own
figures says so: the time is not reported as stolen. So a fixed piece of work is timed while nothing else runs: short
programs, as many at once as there are cores, each of which starts an interpreter, computes, and fills some memory.
Standard library alone, since it is asked before anything is installed.
"""

import os
import statistics
import subprocess
import sys
import time  # noqa: TID251 - measures real time

# What the work takes on a quiet machine with two cores (six readings went from 0.31 to 0.36).
REFERENCE_S = 0.33
_TIMES = 3
# A reading above this says that something is wrong, and excuses nothing more.
SLOWEST = 4.0
_PROGRAM = """
import hashlib, json, re
rows = [{"number": number, "text": hashlib.sha256(b"%d" % number).hexdigest()} for number in range(40_000)]
found = json.loads(json.dumps(rows))
assert sum(len(re.findall("[a-f]+", row["text"])) for row in found) > 0
memory = bytearray(64 << 20)
memory[:: 4_096] = b"x" * len(memory[:: 4_096])
"""


def reading_s() -> float:
    """How long the work takes now, in seconds."""
    began = time.monotonic()
    running = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", _PROGRAM], stdin=subprocess.DEVNULL)
        for _ in range(os.cpu_count() or 1)
    ]
    for one in running:
        one.wait()
    return time.monotonic() - began


def slowness() -> float:
    """How many times as long as on the machine of the budgets things take now: 1.0 where they take no longer."""
    seen = statistics.median(reading_s() for _ in range(_TIMES)) / REFERENCE_S
    return min(max(seen, 1.0), SLOWEST)


if __name__ == "__main__":
    print(f"{reading_s():.2f} s, {slowness():.2f} times as long as on the machine of the budgets")
