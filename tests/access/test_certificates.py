"""Certificate files: what is loaded, and what is refused, by name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sterna_broker.access.certificates import CertificateFiles, load
from sterna_broker.access.errors import AccessError
from sterna_broker.access.watching import Watch

from tests.access.authorities import Authority


def test_a_pair_is_loaded_with_what_people_want_to_know(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue(tmp_path, "broker", days=30)
    loaded = load(CertificateFiles(certificate, key, authority.write(tmp_path / "ca.pem")))
    assert loaded.subject == "CN=broker"
    assert loaded.client_ca == authority.pem
    assert "PRIVATE" not in repr(loaded)


def _missing(folder: Path, _: Authority) -> None:
    (folder / "tls.crt").unlink()


def _empty(folder: Path, _: Authority) -> None:
    (folder / "tls.crt").write_bytes(b"")


def _garbage(folder: Path, _: Authority) -> None:
    (folder / "tls.crt").write_bytes(b"no certificate")


def _key_missing(folder: Path, _: Authority) -> None:
    (folder / "tls.key").unlink()


def _key_garbage(folder: Path, _: Authority) -> None:
    (folder / "tls.key").write_bytes(b"s3cret")


def _key_of_another(folder: Path, authority: Authority) -> None:
    _, key = authority.issue(folder / "other")
    key.replace(folder / "tls.key")


def _key_encrypted(folder: Path, authority: Authority) -> None:
    authority.issue(folder, password=b"s3cret")


def _folder(folder: Path, _: Authority) -> None:
    (folder / "tls.key").unlink()
    (folder / "tls.key").mkdir()


def _ca_missing(folder: Path, _: Authority) -> None:
    (folder / "ca.pem").unlink()


def _ca_garbage(folder: Path, _: Authority) -> None:
    (folder / "ca.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_missing, r"--tls-cert .*/tls.crt: No such file"),
        (_empty, r"--tls-cert .*/tls.crt: is empty"),
        (_garbage, r"--tls-cert .*/tls.crt: holds no certificates in PEM"),
        (_key_missing, r"--tls-key .*/tls.key: No such file"),
        (_key_garbage, r"--tls-key .*/tls.key: holds no private key in PEM"),
        (_key_of_another, r"--tls-key .*/tls.key: is not the key of the first certificate in .*/tls.crt"),
        (_key_encrypted, r"--tls-key .*/tls.key: is encrypted"),
        (_folder, r"--tls-key .*/tls.key: Is a directory"),
        (_ca_missing, r"--client-ca .*/ca.pem: No such file"),
        (_ca_garbage, r"--client-ca .*/ca.pem: holds no certificates in PEM"),
    ],
)
def test_a_fault_is_named_with_its_file(
    tmp_path: Path, authority: Authority, spoil: Callable[[Path, Authority], None], why: str
) -> None:
    certificate, key = authority.issue(tmp_path)
    files = CertificateFiles(certificate, key, authority.write(tmp_path / "ca.pem"))
    spoil(tmp_path, authority)
    with pytest.raises(AccessError, match=why) as caught:
        load(files)
    assert "s3cret" not in str(caught.value)


async def test_a_watch_sees_files_replaced_and_links_exchanged(tmp_path: Path) -> None:
    # As a mounted Secret: file -> ..data/file, ..data -> a folder of the moment.
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "file").symlink_to("..data/file")
    loads: list[str] = []
    works = [True]

    async def loaded() -> bool:
        loads.append((tmp_path / "file").read_text() if (tmp_path / "file").exists() else "missing")
        return works[0]

    watch = Watch([tmp_path / "file"], loaded)
    await watch.look()
    assert loads == []
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").replace(tmp_path / "..data")
    await watch.look()
    await watch.look()
    assert loads == ["2"]
    # What could not be used is tried again, though nothing changes any more.
    works[0] = False
    (tmp_path / "2" / "file").unlink()
    await watch.look()
    await watch.look()
    assert loads == ["2", "missing", "missing"]


async def test_what_settles_is_loaded_once_it_was_the_same_in_two_looks(tmp_path: Path) -> None:
    """A file that is written in two steps counts as a whole, one that has come or gone as well."""
    loaded: list[list[str]] = []

    def files() -> list[Path]:
        return sorted(tmp_path.iterdir())

    async def load() -> bool:
        loaded.append([file.read_text() for file in files()])
        return True

    (tmp_path / "a").write_text("first")
    watch = Watch(files, load, settles=True)
    await watch.look()
    assert loaded == []
    (tmp_path / "a").write_text("")
    await watch.look()
    (tmp_path / "a").write_text("second")
    await watch.look()
    assert loaded == []
    await watch.look()
    assert loaded == [["second"]]
    (tmp_path / "b").write_text("more")
    for _ in range(3):
        await watch.look()
    (tmp_path / "a").unlink()
    for _ in range(3):
        await watch.look()
    assert loaded == [["second"], ["second", "more"], ["more"]]


async def test_who_may_read_a_file_and_a_copy_with_an_old_moment_are_changes(tmp_path: Path) -> None:
    loads: list[str] = []

    async def load() -> bool:
        loads.append((tmp_path / "file").read_text())
        return True

    file = tmp_path / "file"
    file.write_text("a")
    watch = Watch([file], load)
    file.chmod(0o640)
    await watch.look()
    before = file.stat()
    file.write_text("b")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    await watch.look()
    await watch.look()
    assert loads == ["a", "b"]
