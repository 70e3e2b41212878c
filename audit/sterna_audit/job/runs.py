"""Runs by their names, and what came of each: `<results>/<namespace>/<job>/<run>/`.

`begun.json` is written before anything is done, so that a run that is repeated knows when it began; `result.json` at
the very end: without it a run has no result.
"""

import json
from collections.abc import Callable
from typing import Any

from sterna_audit import surroundings
from sterna_audit.audits.findings import VERDICTS
from sterna_audit.job.result import BYTES_MAX
from sterna_audit.snapshots import stores
from sterna_audit.snapshots.stores import MissingFileError, Store, open_store, read

BEGUN = "begun.json"
RESULT = "result.json"


class Runs:
    """The runs of one job.

    Args:
        results: the URI below which results are.
        job: namespace and name.
    """

    def __init__(self, results: str, job: str) -> None:
        self._root = stores.below(results, job)
        self._job = open_store(self._root)

    def out(self, run: str) -> Store:
        """Where a run's report and findings go."""
        return open_store(stores.below(self._root, run))

    def begin(self, run: str) -> int:
        """When the run began, for the first time: milliseconds since 1970.

        Raises:
            StoreError: the store does not answer, or does not take it.
        """
        path = f"{run}/{BEGUN}"
        values = _read(self._job, path)
        began = values.get("started_ms") if values is not None else None
        if type(began) is int:
            return began
        began = surroundings.wall_ms()
        self._job.put(path, json.dumps({"run": run, "started_ms": began}).encode())
        return began

    def result(self, run: str) -> dict[str, Any] | None:
        """What came of a run; None: it has not ended, or failed, so that it is to be repeated.

        Raises:
            StoreError: the store does not answer.
        """
        values = _read(self._job, f"{run}/{RESULT}")
        if values is None or values.get("run") != run or values.get("verdict") not in VERDICTS:
            return None
        return values

    def end(self, run: str, result: bytes) -> None:
        """Keeps what came of a run: from here on it has ended.

        Raises:
            StoreError: the store does not take it.
        """
        self._job.put(f"{run}/{RESULT}", result)

    def prune(self, keep: int, own: str, tell: Callable[[str], None]) -> None:
        """Removes the oldest runs, beyond so many of those that began last; never `own`.

        Raises:
            StoreError: the store does not answer; doing it again goes on.
        """
        found = [(began, run) for run in self._job.folders() if (began := self._began(run)) is not None]
        for _, run in sorted(found, reverse=True)[keep:]:
            if run != own:
                tell(f"removing the result of {run}")
                self._remove(run)

    def _began(self, run: str) -> int | None:
        """None: it is no run's folder, and nobody's to remove."""
        values = _read(self._job, f"{run}/{BEGUN}")
        began = values.get("started_ms") if values is not None else None
        return began if type(began) is int else None

    def _remove(self, run: str) -> None:
        # What says that it is a run goes last, so that whoever is ended on the way goes on the next time.
        self._job.remove(f"{run}/{RESULT}")
        for entry in self._job.files(run):
            if entry.path != f"{run}/{BEGUN}":
                self._job.remove(entry.path)
        self._job.remove_folder(run)


def _read(store: Store, path: str) -> dict[str, Any] | None:
    """A small file's JSON object; None where there is none, or something else: it is made anew then."""
    try:
        values = json.loads(read(store, path, BYTES_MAX))
    except (MissingFileError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
