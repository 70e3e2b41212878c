"""An object of the API server as a resource, by an operator that may be older than the definitions there.

Definitions are upgraded first, and an operator may be rolled back beneath newer ones. They give every object the
defaults of fields that this operator has never heard of; to refuse those would leave all of a cluster without it. Such
fields are passed over; the object's Ready condition names them, and the log does, once for each.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import structlog
from sterna_resources import from_newer
from sterna_resources.resource import Resource

log = structlog.get_logger(__name__)


def resource_of(object: Mapping[str, Any]) -> tuple[Resource, tuple[str, ...]]:
    """The resource, as far as its fields are known here, and the fields that were passed over.

    Raises:
        ManifestError: it is not what it should be.
    """
    resource, unknown = from_newer(object)
    for field in unknown:
        _say(object["kind"], field)
    return resource, unknown


@cache
def _say(kind: str, field: str) -> None:
    log.warning("field that this operator does not know, without effect until it is upgraded", kind=kind, field=field)
