"""Where snapshots are kept: a folder, or a bucket of an object store, by a URI.

What a reader or writer needs of it is little, and the same for both: to list what is below a path, to read and to write
one file, to put a small one so that it is there whole or not at all, and to remove. Paths are relative to the root and
have `/` between their steps.

A bucket is `s3://BUCKET/PREFIX`, with `?endpoint=HOST:PORT`, `?region=…`, `?scheme=http` and `?virtual=true` (its name
in the host's name) where they are needed; else AWS_ENDPOINT_URL and AWS_REGION say so. Who we are is told by the
environment or a profile alone (AWS_ACCESS_KEY_ID and so on, AWS_PROFILE): a URI with a password is refused, since URIs
are shown.
"""

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

_CHUNK_BYTES = 1 << 20
_TEMPORARY = ".part"


class StoreError(OSError):
    """A store cannot do what was asked: not there, not allowed, not reachable. Nothing was changed."""


class MissingFileError(StoreError):
    """There is no such file."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A file below a path, with its size in bytes."""

    path: str
    size: int


class Output(Protocol):
    """A file that is being written."""

    def write(self, data: bytes, /) -> int:
        """Appends."""
        ...

    def finish(self) -> None:
        """Ends it: from here on it is there, whatever happens to this machine."""
        ...

    def abandon(self) -> None:
        """Lets go of it; what is left of it, if anything, may be removed."""
        ...


class Store(Protocol):
    """A place for snapshots. All that goes wrong is a StoreError."""

    @property
    def uri(self) -> str:
        """As people are told of it."""
        ...

    def folders(self, path: str = "") -> list[str]:
        """The names of the folders right below a path, sorted; none if there is no such path."""
        ...

    def files(self, path: str) -> list[Entry]:
        """All files below a path at any depth, relative to the root, sorted; none if there is no such path."""
        ...

    def size(self, path: str) -> int:
        """Of a file, in bytes. MissingFileError if it is not there."""
        ...

    def reading(self, path: str) -> BinaryIO:
        """Opens a file for reading at any place. MissingFileError if it is not there."""
        ...

    def create(self, path: str) -> Output:
        """Begins a file; one of that name is replaced when this one is finished.

        What is in a folder stays as it was until then. In a bucket part of a file that was abandoned may be there, too.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Writes a whole file: it is there with all of `data`, or as it was, and stays so when the machine fails."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file, which need not be there."""
        ...

    def remove_folder(self, path: str) -> None:
        """Removes all below a path, which need not be there."""
        ...


def read(store: Store, path: str, limit: int) -> bytes:
    """A whole file of at most `limit` bytes.

    Raises:
        MissingFileError: it is not there.
        StoreError: it cannot be read, or is larger.
    """
    size = store.size(path)
    if size > limit:
        raise StoreError(f"{path} has {size} bytes, at most {limit} are read")
    with store.reading(path) as file, told(path):
        return file.read(limit)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """A file from where it stands to its end, in pieces."""
    while piece := file.read(_CHUNK_BYTES):
        yield piece


@contextmanager
def told(path: str) -> Iterator[None]:
    """What goes wrong with a path, as a StoreError that names it."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} is not there") from error
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:300]


class Directory:
    """A folder of this machine, or one that is mounted. What is written is on the disk before it counts."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def uri(self) -> str:
        """The folder."""
        return str(self._root)

    def folders(self, path: str = "") -> list[str]:
        """See `Store`."""
        with told(path or self.uri):
            try:
                return sorted(one.name for one in os.scandir(self._root / path) if one.is_dir(follow_symlinks=False))
            except FileNotFoundError:
                return []

    def files(self, path: str) -> list[Entry]:
        """See `Store`."""
        with told(path):
            found = []
            for folder, _, names in os.walk(self._root / path):
                for name in names:
                    file = Path(folder) / name
                    found.append(Entry(file.relative_to(self._root).as_posix(), file.lstat().st_size))
            return sorted(found)

    def size(self, path: str) -> int:
        """See `Store`."""
        with told(path):
            return (self._root / path).stat().st_size

    def reading(self, path: str) -> BinaryIO:
        """See `Store`."""
        with told(path):
            return (self._root / path).open("rb")

    def create(self, path: str) -> Output:
        """See `Store`."""
        with told(path):
            whole = self._root / path
            self._make_folder(whole.parent)
            return _LocalOutput(path, whole)

    def put(self, path: str, data: bytes) -> None:
        """See `Store`."""
        file = self.create(path)
        try:
            file.write(data)
            file.finish()
        except BaseException:
            file.abandon()
            raise

    def remove(self, path: str) -> None:
        """See `Store`."""
        with told(path):
            (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """See `Store`."""
        with told(path):
            for folder, _, names in os.walk(self._root / path, topdown=False):
                for name in names:
                    (Path(folder) / name).unlink(missing_ok=True)
                Path(folder).rmdir()
            if (self._root / path).parent.is_dir():
                _sync((self._root / path).parent)

    def _make_folder(self, folder: Path) -> None:
        """Makes it with those above it; each is on the disk when what is in it is to be."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _sync(one.parent)


class _LocalOutput:
    """A file beside the one that it becomes. Whoever writes it has it locked: nobody else writes into it meanwhile."""

    def __init__(self, path: str, whole: Path) -> None:
        self._path = path
        self._whole = whole
        self._part = whole.with_name(whole.name + _TEMPORARY)
        self._file = self._opened()

    def _opened(self) -> BinaryIO:
        while True:
            file = os.fdopen(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb")
            try:
                _lock(file)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), self._part.stat()):
                        file.truncate(0)
                        return file
            except BlockingIOError:
                file.close()
                raise StoreError(f"{self._path} is being written by somebody else") from None
            except BaseException:
                file.close()
                raise
            # Somebody has finished it just now: that is the whole one.
            file.close()

    def write(self, data: bytes, /) -> int:
        with told(self._path):
            return self._file.write(data)

    def finish(self) -> None:
        with told(self._path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._whole)
        with told(self._path):
            _sync(self._whole.parent)

    def abandon(self) -> None:
        with told(self._path):
            self._file.close()


def _lock(file: BinaryIO) -> None:
    """Raises BlockingIOError if somebody else has it locked. Where a file system has no locks, nobody has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def _sync(folder: Path) -> None:
    """Has the disk know what is in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Bucket:
    """A prefix of an object store's bucket. A file is there when its upload has ended, and then whole."""

    def __init__(self, uri: str, system: fs.FileSystem, prefix: str, reach: Mapping[str, Any]) -> None:
        self._uri = uri
        self._system = system
        self._prefix = prefix.rstrip("/")
        self.reach = reach
        """How others reach it: settings of Arrow's file system. Who we are is not among them."""

    @property
    def uri(self) -> str:
        """Without what was said about how to reach it."""
        return self._uri

    def folders(self, path: str = "") -> list[str]:
        """See `Store`."""
        found = self._below(path, is_recursive=False)
        return sorted(one.base_name for one in found if one.type == fs.FileType.Directory)

    def files(self, path: str) -> list[Entry]:
        """See `Store`."""
        cut = len(self._prefix) + 1
        below = self._below(path, is_recursive=True)
        return sorted(Entry(one.path[cut:], one.size or 0) for one in below if one.type == fs.FileType.File)

    def _below(self, path: str, *, is_recursive: bool) -> list[fs.FileInfo]:
        with told(path or self._uri):
            return self._system.get_file_info(
                fs.FileSelector(self.whole(path), allow_not_found=True, recursive=is_recursive)
            )

    def whole(self, path: str) -> str:
        """A path with its bucket, as Arrow's file system has it."""
        return f"{self._prefix}/{path}" if path else self._prefix

    def size(self, path: str) -> int:
        """See `Store`."""
        with told(path):
            found = self._system.get_file_info(self.whole(path))
            if found.type != fs.FileType.File:
                raise MissingFileError(f"{path} is not there")
            return found.size or 0

    def reading(self, path: str) -> BinaryIO:
        """See `Store`."""
        with told(path):
            return cast("BinaryIO", self._system.open_input_file(self.whole(path)))

    def create(self, path: str) -> Output:
        """See `Store`."""
        with told(path):
            return _RemoteOutput(path, self._system.open_output_stream(self.whole(path), compression=None))

    def put(self, path: str, data: bytes) -> None:
        """See `Store`."""
        # Small files go in one request, large ones in several, of which the last makes the file.
        file = self.create(path)
        file.write(data)
        file.finish()

    def remove(self, path: str) -> None:
        """See `Store`."""
        try:
            self.size(path)
        except MissingFileError:
            return
        with told(path):
            self._system.delete_file(self.whole(path))

    def remove_folder(self, path: str) -> None:
        """See `Store`."""
        with told(path):
            if self._below(path, is_recursive=True):
                self._system.delete_dir(self.whole(path))


class _RemoteOutput:
    def __init__(self, path: str, file: pa.NativeFile) -> None:
        self._path = path
        self._file = file

    def write(self, data: bytes, /) -> int:
        with told(self._path):
            self._file.write(data)
            return len(data)

    def finish(self) -> None:
        with told(self._path):
            self._file.close()

    def abandon(self) -> None:
        # Closing is the only end that a stream of Arrow has: a file that lacks its end may stay, for no manifest.
        with told(self._path):
            self._file.close()


def open_store(uri: str) -> Store:
    """The store at a URI: a path, `file:///path` or `s3://bucket/prefix`. Nothing is read or made yet.

    Raises:
        ValueError: it cannot be one; the text says why, without the URI's secrets.
    """
    if "://" not in uri:
        if not uri:
            raise ValueError("no folder and no s3:// is named")
        return Directory(Path(uri))
    parts = urlsplit(uri)
    if parts.username or parts.password:
        raise ValueError(
            "a URI holds no password: it is told by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        )
    if parts.scheme == "file":
        if parts.netloc or parts.query:
            raise ValueError("file:// is followed by a path from / on, and nothing else")
        return Directory(Path(parts.path))
    if parts.scheme != "s3":
        raise ValueError(f"{parts.scheme}:// is not known: snapshots are in a folder or below s3://")
    return _bucket(parts.netloc, parts.path.strip("/"), dict(parse_qsl(parts.query, keep_blank_values=True)))


def below(uri: str, path: str) -> str:
    """The URI of a path below a root, reached in the same way."""
    root, mark, said = uri.partition("?") if uri.startswith("s3://") else (uri, "", "")
    return f"{root.rstrip('/')}/{path}{mark}{said}"


def _bucket(name: str, prefix: str, said: dict[str, str]) -> Bucket:
    if unknown := said.keys() - {"endpoint", "region", "scheme", "virtual"}:
        raise ValueError(f"s3:// is not told {', '.join(sorted(unknown))}: endpoint, region, scheme or virtual")
    if not name or ".." in prefix.split("/"):
        raise ValueError("s3:// is followed by a bucket and a prefix")
    endpoint = said.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, found, host = endpoint.rpartition("://")
    region = said.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    chosen = said.get("scheme") or (scheme if found else "https")
    if chosen not in ("http", "https"):
        raise ValueError(f"s3:// is reached by http or https, not {chosen}")
    reach: dict[str, Any] = {
        "region": region or ("us-east-1" if host else None),
        "endpoint_override": host.rstrip("/") or None,
        "scheme": chosen,
        "force_virtual_addressing": said.get("virtual", "false") == "true",
    }
    settings: dict[str, Any] = {
        # Writing by a thread of its own would hide from the exporter how fast the store is.
        "background_writes": False,
        # Small files go in one request.
        "allow_delayed_open": True,
    }
    system = fs.S3FileSystem(**reach, **settings)
    whole = f"{name}/{prefix}".rstrip("/")
    return Bucket(f"s3://{whole}", system, whole, reach)
