"""Whether what stands in Kubernetes is what is wanted, seen from us.

What others added, and what the API server put in for what we left out, does not count. A key of `data` that we want no
more does: all of `data` is ours.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_DECIMAL = {"m": Decimal("0.001"), "": Decimal(1)} | {
    suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)
}
_BINARY = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_FACTORS = _DECIMAL | _BINARY


def quantity(value: Any) -> Decimal | None:
    """An amount as a number; None: it is none."""
    match = _QUANTITY.fullmatch(str(value))
    return Decimal(match[1]) * _FACTORS[match[2] or ""] if match else None


def holds(wanted: Any, standing: Any) -> bool:
    """Whether everything that is wanted stands. Of a list all entries have to, in order, and no others."""
    if isinstance(wanted, Mapping):
        if not isinstance(standing, Mapping):
            return not wanted and standing is None
        return all(holds(value, standing.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        others = standing or []
        return len(wanted) == len(others) and all(map(holds, wanted, others))
    if wanted == standing:
        return True
    # The API server writes amounts in a form of its own: 1024Mi comes back as 1Gi.
    amount = quantity(wanted)
    return amount is not None and standing is not None and amount == quantity(standing)


def is_current(wanted: Mapping[str, Any], standing: Mapping[str, Any] | None) -> bool:
    """Whether an object needs no apply."""
    if standing is None or not holds(wanted, standing):
        return False
    return "data" not in wanted or set(standing.get("data") or ()) <= set(wanted["data"])
