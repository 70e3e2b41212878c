"""The feature catalogue's ids and titles (tests/catalogue/*.tsv), against which `covers` marks are checked.

The catalogue describes row by row what the products do that Sterna stands in for; the rows themselves are kept
elsewhere. An id such as `EMS-DEST-A14` names product, area and row.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.fingerprints import ROOT

FOLDER = ROOT / "tests" / "catalogue"

PRODUCTS = {
    "EMS": "TIBCO EMS",
    "SS": "SmartSockets transports",
    "UM": "Universal Messaging",
    "FMQ": "FioranoMQ",
    "EFTL": "TIBCO eFTL",
}
AREAS = ("MSG", "DEST", "CLI", "TX", "STORE", "SEC", "HA", "ROUTE", "IO", "ADMIN", "MON", "PERF")


@dataclass(frozen=True)
class Row:
    """One row of the catalogue: what it is about, not what it says."""

    id: str
    product: str
    area: str
    title: str


@cache
def rows(folder: Path = FOLDER) -> dict[str, Row]:
    """All rows by id. A malformed or repeated line is an error, since every check rests on this list."""
    found: dict[str, Row] = {}
    for file in sorted(folder.glob("*.tsv")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            id, separator, title = line.partition("\t")
            product, _, rest = id.partition("-")
            area = rest.partition("-")[0]
            if not separator or not title or product not in PRODUCTS or area not in AREAS or id in found:
                raise ValueError(f"{file.name}:{number}: not a new row `id<TAB>title`: {line!r}")
            found[id] = Row(id, product, area, title)
    if not found:
        raise ValueError(f"no catalogue in {folder}")
    return found


def unknown(ids: list[str]) -> list[str]:
    """Those of `ids` that the catalogue does not have."""
    return [id for id in ids if id not in rows()]
