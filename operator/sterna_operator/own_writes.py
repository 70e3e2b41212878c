"""Which version of a child the operator has written itself: what the watch tells of that is no news.

Of everything that is made for a thousand AuditJobs the watch tells, right after it was made; to look at each of them
for that once more would cost more than to make it. What somebody changes afterwards is another version.
"""

_OBJECTS_MAX = 10_000


class OwnWrites:
    """The last version by uid. A bounded memory: what it has forgotten is looked at once more."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def note(self, uid: str, version: str) -> None:
        """The API server has answered a write of ours with this version."""
        self._versions.pop(uid, None)
        while len(self._versions) >= _OBJECTS_MAX:
            del self._versions[next(iter(self._versions))]
        self._versions[uid] = version

    def has(self, uid: str, version: str) -> bool:
        """Whether this version is what we have written last."""
        return self._versions.get(uid) == version
