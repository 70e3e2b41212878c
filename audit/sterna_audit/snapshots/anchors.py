"""What is left of snapshots that were pruned: up to which cut, and the link by which the chain goes on from there.

`<cluster>/<broker>/pruned.json` is signed as manifests are. It is written before anything is removed: a run that is
broken off leaves some of what it wanted to remove, which counts as removed and is removed by the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_audit import schema
from sterna_audit.snapshots import manifests, signed_json
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Signer, Verifier
from sterna_audit.snapshots.layout import CUT_MAX, Place
from sterna_audit.snapshots.manifests import BadManifestError
from sterna_audit.snapshots.stores import MissingFileError, Store, StoreError, read

_ANCHOR_BYTES_MAX = 1 << 20
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Anchor:
    """What was pruned of a broker's snapshots.

    Attributes:
        place: cluster and broker.
        through: every cut up to this one is gone; 0: none.
        first: the lowest number among those, the first time that something was pruned; 0: none.
        sha256: of the manifest of the cut `through`, which the next one names; None with 0.
        position: where that cut was; 0 with 0.
        store: the store's identity; None with 0.
        tables: up to which cut a table, as `events/ends`, is gone where it went earlier than its snapshots.
        pruned_ms: when, milliseconds since 1970.
    """

    place: Place
    through: int = 0
    first: int = 0
    sha256: str | None = None
    position: int = 0
    store: str | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    pruned_ms: int = 0

    def pruned_tables(self, number: int) -> frozenset[str]:
        """The tables that a cut has no more."""
        return frozenset(title for title, through in self.tables.items() if number <= through)


def encoded(anchor: Anchor, signer: Signer | None) -> bytes:
    """The anchor's bytes."""
    values = {
        "anchor": _VERSION,
        "cluster": anchor.place.cluster,
        "broker": anchor.place.broker,
        "through": anchor.through,
        "first": anchor.first,
        "manifest": anchor.sha256,
        "position": anchor.position,
        "store": anchor.store,
        "tables": dict(anchor.tables),
        "pruned_ms": anchor.pruned_ms,
    }
    return signed_json.signed(values, signer)


def decoded(data: bytes, place: Place) -> tuple[Anchor, dict[str, Any]]:
    """The anchor, and what a signature is made of.

    Raises:
        BadManifestError: it is none.
    """
    try:
        values = signed_json.decoded(data)
    except signed_json.BadJsonError as error:
        raise BadManifestError(str(error)) from error
    manifests.number(values, "anchor", _VERSION, _VERSION)
    if (found := manifests.place(values)) != place:
        raise BadManifestError(f"it is of {found}, and stands where another's should")
    tables = values.get("tables")
    if not isinstance(tables, dict) or not tables.keys() <= {table.title for table in schema.tables()}:
        raise BadManifestError("tables names what is no table")
    through = manifests.number(values, "through", 0, CUT_MAX)
    anchor = Anchor(
        place=place,
        through=through,
        first=manifests.number(values, "first", min(through, 1), through),
        sha256=manifests.sha256_or_none(values, "manifest"),
        position=manifests.number(values, "position"),
        store=manifests.store(values) if through else None,
        tables={title: manifests.number(tables, title, 1, CUT_MAX) for title in tables},
        pruned_ms=manifests.number(values, "pruned_ms"),
    )
    if (anchor.sha256 is None) != (through == 0):
        raise BadManifestError("manifest is missing, or there although nothing was pruned")
    return anchor, values


def find(store: Store, place: Place, verifier: Verifier | None = None) -> tuple[Anchor | None, list[Finding]]:
    """What was pruned of a broker's snapshots, and what is wrong with the file that says so.

    An anchor that is not signed as it has to be counts for nothing: else whoever can write there could remove cuts.
    """
    try:
        anchor, values = decoded(read(store, place.anchor, _ANCHOR_BYTES_MAX), place)
    except MissingFileError:
        return None, []
    except (StoreError, BadManifestError) as error:
        return None, [Finding(place.anchor, "broken-anchor", str(error))]
    found = signed_json.signature_findings(place.anchor, values, verifier)
    return (None if found else anchor), found
