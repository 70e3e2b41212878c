"""One module a line; each has `measure(rig)`, which returns the line's value (or values) with details."""

from collections.abc import Callable

from bench.measures import b1, b2, b3, b4, b5, b6, b7, b8, b9
from bench.results import Measured
from bench.rig import Rig

MEASURES: dict[str, Callable[[Rig], list[Measured]]] = {
    "B1": b1.measure,
    "B2": b2.measure,
    "B3": b3.measure,
    "B4": b4.measure,
    "B5": b5.measure,
    "B6": b6.measure,
    "B7": b7.measure,
    "B8": b8.measure,
    "B9": b9.measure,
}
