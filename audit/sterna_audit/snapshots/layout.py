"""Where the files of snapshots are below a root.

`<cluster>/<broker>/<cut>/state/<table>-<number>.parquet`, the same below `events`, and `manifest.json`, without which
it is no snapshot. `<cluster>/<broker>/pruned.json` says which earlier cuts were removed.
"""

import re
from dataclasses import dataclass

MANIFEST = "manifest.json"
ANCHOR = "pruned.json"
CUT_DIGITS = 12
CUT_MAX = 10**CUT_DIGITS - 1
FILES_OF_A_TABLE_MAX = 100_000

# A name of a cluster or broker is one step of a path, whatever it came from.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FILE = re.compile(r"(state|events)/([a-z_]{1,40})-([0-9]{3,5})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a broker's snapshots are.

    Raises:
        ValueError: a name cannot be a step of a path.
    """

    cluster: str
    broker: str

    def __post_init__(self) -> None:
        for what, name in (("cluster", self.cluster), ("broker", self.broker)):
            if not is_name(name):
                raise ValueError(f"{what}: {name[:80]!r} cannot be the name of a folder")

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker}"

    @property
    def anchor(self) -> str:
        """The path of what says what was pruned."""
        return f"{self}/{ANCHOR}"

    def cut(self, number: int) -> str:
        """The path of a cut's folder."""
        return f"{self}/{number:0{CUT_DIGITS}}"

    def manifest(self, number: int) -> str:
        """The path of a cut's manifest."""
        return f"{self.cut(number)}/{MANIFEST}"


def is_name(name: str) -> bool:
    """Whether a cluster or a broker can be called so."""
    return _NAME.fullmatch(name) is not None


def cut_number(folder: str) -> int | None:
    """The number of the cut whose folder is called so; None for any other folder."""
    return int(folder) if len(folder) == CUT_DIGITS and folder.isascii() and folder.isdigit() and int(folder) else None


def file_name(folder: str, table: str, number: int) -> str:
    """The path of a table's file within a snapshot."""
    return f"{folder}/{table}-{number:03}.parquet"


def parsed_file(path: str) -> tuple[str, str, int] | None:
    """Folder, table and number of a file within a snapshot; None for a path that this code would not have made."""
    found = _FILE.fullmatch(path)
    if found is None or file_name(found[1], found[2], int(found[3])) != path:
        return None
    return found[1], found[2], int(found[3])
