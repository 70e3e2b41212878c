"""The same in an object store: a real server of S3's interface on loopback, reached by Arrow's own client."""

import asyncio
import signal
from urllib.parse import urlsplit

import pytest
from sterna_audit.exporting import export
from sterna_audit.snapshots import chains, pruning, reading
from sterna_audit.snapshots.pruning import Keep, Retention
from sterna_audit.snapshots.stores import MissingFileError, Store, StoreError, open_store, read

from tests.audit.conftest import BUCKET_KEYS
from tests.audit.ending import run_killed
from tests.audit.kept import PLAIN, SIGNER, VERIFIER, Kept
from tests.audit.story import PLACE, Told

SECRETS = [value for name, value in BUCKET_KEYS.items() if "KEY" in name]


@pytest.fixture
def kept_there(bucket: str) -> Kept:
    return Kept(open_store(bucket))


def test_snapshots_are_written_listed_verified_and_pruned_there(kept_there: Kept) -> None:
    store = kept_there.store
    assert list(reading.places(store)) == []
    kept_there.cuts(3)
    assert list(reading.places(store)) == [PLACE]
    assert reading.numbers(store, PLACE) == [1, 2, 3]
    assert kept_there.faults() == []
    pruning.prune(store, PLACE, Retention(Keep(cuts=2), {"state": Keep(cuts=1)}), SIGNER, VERIFIER)
    assert reading.numbers(store, PLACE) == [2, 3]
    assert kept_there.faults() == []
    assert not any("/000000000001/" in entry.path or "/000000000002/state/" in entry.path for entry in store.files(""))
    # Who we are is nowhere in it.
    assert not any(secret in read(store, PLACE.manifest(3), 1 << 20).decode() for secret in SECRETS)
    assert "?" not in store.uri
    # A run that is repeated finds what is there.
    last = kept_there.chain().snapshots[-1].manifest
    assert last is not None
    assert not asyncio.run(export(Told(kept_there.story, last.cut, {}), store, PLAIN)).is_new


def test_faults_are_found_there(kept_there: Kept) -> None:
    kept_there.cuts(2)
    path = f"{PLACE.cut(1)}/events/ends-000.parquet"
    data = read(kept_there.store, path, 1 << 20)
    kept_there.store.put(path, data[:-1] + b"?")
    kept_there.store.remove(PLACE.manifest(2))
    assert kept_there.faults() == [("000000000001/events/ends-000.parquet", "altered-file")]
    assert [one.is_half_written for one in kept_there.chain().snapshots] == [False, True]
    kept_there.store.remove(path)
    kept_there.store.remove(path)
    assert kept_there.faults() == [("000000000001/events/ends-000.parquet", "missing-file")]


def test_more_keys_than_one_answer_holds(kept_there: Kept) -> None:
    store = kept_there.store
    for number in range(1, 1_051):
        store.put(f"bank/broker-0/{number:012}/state/x", b"x")
    assert len(store.files("bank")) == 1_050
    assert reading.numbers(store, PLACE) == list(range(1, 1_051))
    store.remove_folder("bank")
    assert store.files("") == []


def test_an_upload_that_is_killed_leaves_no_snapshot_and_the_next_makes_it_whole(bucket: str) -> None:
    store = open_store(bucket)

    for changes in (2, 60):
        assert run_killed(bucket, changes) == -signal.SIGKILL
        assert [one.is_half_written for one in chains.verify(store, PLACE, VERIFIER).snapshots] in ([], [True])
    assert run_killed(bucket, 100_000) == 0
    chain = chains.verify(store, PLACE, VERIFIER)
    assert chain.findings == []
    assert [one.is_half_written for one in chain.snapshots] == [False]


def test_what_the_store_refuses_is_an_error_that_says_so(s3_server: str, bucket: str) -> None:
    nowhere: Store = open_store(f"s3://no-such-bucket/x?endpoint={s3_server}&scheme=http")
    with pytest.raises(StoreError):
        nowhere.put("a", b"x")
    with pytest.raises(MissingFileError):
        open_store(bucket).size("nothing")
    with pytest.raises(MissingFileError):
        read(open_store(bucket), "nothing", 10)


@pytest.fixture
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_endpoint")
@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("", "no folder"),
        ("s3://key:secret@bucket/x", "holds no password"),
        ("s3://", "a bucket and a prefix"),
        ("s3://bucket/../x", "a bucket and a prefix"),
        ("s3://bucket/x?secret_key=abc", "is not told secret_key"),
        ("s3://bucket/x?scheme=ftp", "http or https"),
        ("gs://bucket/x", "gs:// is not known"),
        ("file://host/x", "a path from /"),
    ],
)
def test_a_uri_that_is_none_is_refused_without_its_secrets(uri: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        open_store(uri)
    assert "secret@" not in str(raised.value)
    assert "abc" not in str(raised.value)
    assert urlsplit(open_store("/somewhere").uri).path == "/somewhere"
