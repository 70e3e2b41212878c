"""Where manifests come from.

A folder today; a cluster's shared store will be another source behind the same interface.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.reading import SUFFIXES, Manifest, read_files, read_text

from sterna_broker.access.watching import stamps

_READ_TIMES = 5


class Source(Protocol):
    """Something that can say what the configuration is, whenever it is asked."""

    owner: str
    """The owner of what comes from here, as listings show it."""

    async def load(self) -> list[Manifest]:
        """All manifests as they are now.

        Raises:
            ManifestError: with all that is wrong; then nothing of it is to be used.
        """


class FolderSource:
    """The manifests in one folder: its files *.yaml, *.yml and *.json in the order of their names, not those below it.

    Files whose names begin with a dot are left out: editors and Kubernetes' mounted ConfigMaps keep theirs there. So
    are folders; what else is no file, such as a link that leads nowhere, cannot be read, and is not left out: what it
    describes would be taken away.
    """

    owner = "folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def load(self) -> list[Manifest]:
        """See Source. Files are read in a thread."""
        return await asyncio.to_thread(self._read)

    def files(self) -> list[Path]:
        """Those that are there now; none where the folder cannot be read."""
        try:
            return self._files()
        except OSError:
            return []

    def _read(self) -> list[Manifest]:
        """What was there at one moment: files that are exchanged while they are read may tell of two."""
        for _ in range(_READ_TIMES):
            try:
                files = self._files()
            except OSError as error:
                raise self._unreadable(error.strerror or str(error)) from error
            before = stamps(files)
            manifests: list[Manifest] = []
            wrong: ManifestError | None = None
            try:
                manifests = read_files(files)
            except ManifestError as error:
                wrong = error
            if stamps(self.files()) == before:
                if wrong is not None:
                    raise wrong
                return manifests
        raise self._unreadable(f"its files changed each of {_READ_TIMES} times that they were read")

    def _files(self) -> list[Path]:
        return sorted(_manifest_files(self.folder.iterdir()))

    def _unreadable(self, reason: str) -> ManifestError:
        return ManifestError([Problem(Place(str(self.folder), 1), "", f"cannot be read: {reason}")])


class DefaultSource:
    """Without a folder any queue and any topic may be created, as in a fresh TIBCO EMS."""

    owner = "default"

    async def load(self) -> list[Manifest]:
        """See Source."""
        documents = [
            f"apiVersion: sterna.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: any}}\nspec: {{name: '>'}}\n"
            for kind in ("Queue", "Topic")
        ]
        return read_text("---\n".join(documents), "built-in default")


def _manifest_files(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.suffix in SUFFIXES and not path.name.startswith(".") and not path.is_dir()]
