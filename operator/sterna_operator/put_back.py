"""What the API server, or an admission webhook, puts back as soon as the operator has changed it.

A newer Kubernetes has defaults that `builders.shared` does not know, and a policy of somebody's may add to every object
of a kind. The answer to a write shows it: what is still not as it should be right after we have put it right will not
be so by trying again. It is noted here and left alone from then on; the cluster's status says so.
"""

from collections.abc import Mapping

import structlog

log = structlog.get_logger(__name__)

_OBJECTS_MAX = 10_000


class PutBack:
    """Differences by the uid of their object, as `differences` marks them. Forgotten when the operator ends."""

    def __init__(self) -> None:
        self._of: dict[str, frozenset[str]] = {}

    def of(self, uid: str) -> frozenset[str]:
        """The differences of an object that are left alone."""
        return self._of.get(uid, frozenset())

    def all(self) -> Mapping[str, frozenset[str]]:
        """Those of all objects."""
        return self._of

    def note(self, uid: str, label: str, differences: Mapping[str, str]) -> None:
        """An object was just put right, and these differences (with their words) are there all the same."""
        known = self.of(uid)
        fresh = differences.keys() - known
        if not fresh:
            return
        while len(self._of) >= _OBJECTS_MAX and uid not in self._of:
            del self._of[next(iter(self._of))]
        self._of[uid] = known | fresh
        words = [differences[one] for one in sorted(fresh)]
        log.warning("put back by the API server or an admission webhook, and left so", object=label, differences=words)
