"""Why a deliverable ended, as `ends.reason` and `deliverables.reason` number it."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

ACKNOWLEDGED, EXPIRED, DISCARDED, PURGED, MAX_REDELIVERY, MOVED, DEAD, DAMAGED, DELETED = range(1, 10)

NAMES = {
    ACKNOWLEDGED: "acknowledged",
    EXPIRED: "expired",
    DISCARDED: "discarded",
    PURGED: "purged",
    MAX_REDELIVERY: "max-redelivery",
    MOVED: "moved",
    DEAD: "dead",
    DAMAGED: "damaged",
    DELETED: "deleted",
}


def name(reason: Column) -> Column:
    """A reason's name; its number where it is none of these."""
    found: Column = reason.cast("string")
    for number, word in NAMES.items():
        found = F.when(reason == number, word).otherwise(found)
    return found
