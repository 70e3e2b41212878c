"""Names that no other process of the same run takes: several share one API server."""

import itertools
import os

_numbers = itertools.count(1)


def own_name(name: str) -> str:
    """Another one with each call, `name` in front: fit for namespaces and for whatever concerns a whole server."""
    return "-".join((name, *filter(None, [os.environ.get("PYTEST_XDIST_WORKER")]), str(next(_numbers))))
