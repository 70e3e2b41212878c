"""What no audit of events can judge, as findings: intervals that are not there, or in which events are missing."""

from collections.abc import Iterator

from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning

MEANINGS = {
    "no-interval": Meaning(
        "Two cuts could not be compared, and what happened between them was not judged.",
        "See the audit `chain` for the cut that cannot be read.",
    ),
    "events-missing": Meaning(
        "In some interval events are missing: what is said of it holds of what is there.",
        "See the audit `chain` for the range and for why. Export more often.",
    ),
}
"""Of the kinds that stand here."""


def unjudged(history: History) -> Iterator[Finding]:
    """What cannot be judged of each broker, and why."""
    for broker in history.brokers:
        cluster, name = broker.place.cluster, broker.place.broker
        for why in broker.unproven:
            yield Finding("not provable", "warning", "no-interval", why, cluster, name)
        for interval in broker.intervals:
            if interval.has_gap:
                why = "events are missing in this interval, and what they would have told is not judged"
                yield Finding("not provable", "warning", "events-missing", why, cluster, name, interval.cut)
