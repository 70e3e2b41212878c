"""Which users hold: records, the file, several sources, and credentials that end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sterna_broker.access.errors import AccessError
from sterna_broker.access.users import CREDENTIALS_MAX, UserStore
from sterna_broker.access.users_file import parse_users, read_users
from sterna_resources.problems import ManifestError

from tests.access.conftest import hashed


def record(*passwords: str, until_ms: int | None = None) -> dict[str, Any]:
    return {"credentials": [{"argon2": hashed(one), "not_after_ms": until_ms} for one in passwords]}


def test_records_are_replaced_as_a_whole_and_listeners_told_of_changes_only() -> None:
    store, told = UserStore(), []
    store.on_change(lambda: told.append(len(store)))
    assert store.replace({"a": record("1"), "b": record("2")}) == {}
    assert store.replace({"a": record("1"), "b": record("2")}) == {}
    assert store.replace({"b": record("2")}) == {}
    assert told == [2, 1]
    assert not store.knows("a")
    assert len(store.live("b")) == 1


def test_credentials_end_when_their_time_has_come() -> None:
    now = [1_000]
    store = UserStore(lambda: now[0])
    store.replace(
        {"a": {"credentials": [*record("new")["credentials"], *record("old", until_ms=2_000)["credentials"]]}}
    )
    new, old = store.live("a")
    assert store.accepts("a", old.id)
    now[0] = 1_999
    assert store.accepts("a", old.id)
    assert not store.ended_since(1_000)
    now[0] = 2_000
    assert store.live("a") == (new,)
    assert not store.accepts("a", old.id)
    assert store.ended_since(1_999)
    assert not store.ended_since(2_000)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (None, "no list"),
        ({"credentials": "x"}, "no list"),
        ({"credentials": [{}]}, "no text 'argon2'"),
        ({"credentials": [{"argon2": "s3cret"}]}, "no argon2id hash"),
        ({"credentials": [{"argon2": "s3cret", "not_after": 1}]}, "a field that nobody knows"),
        ({"credentials": [{"argon2": "s3cret", "not_after_ms": "soon"}]}, "no whole number"),
        ({"credentials": [{"argon2": "s3cret"}] * (CREDENTIALS_MAX + 1)}, "at most"),
    ],
)
def test_a_bad_record_closes_its_user_and_nobody_else(bad: Any, why: str) -> None:
    store = UserStore()
    store.replace({"a": record("1"), "b": record("2")})
    problems = store.replace({"a": bad, "b": record("2"), "c:d": record("3")})
    assert why in problems["a"]
    assert "s3cret" not in problems["a"]
    assert "colon" in problems["c:d"]
    assert store.live("a") == ()
    assert len(store.live("b")) == 1


def test_fields_of_the_records_writer_are_left_alone() -> None:
    assert UserStore().replace({"a": {**record("1"), "owner": {"by": "operator"}}}) == {}


def test_the_file_comes_before_the_cluster_for_a_name_that_both_know() -> None:
    store = UserStore()
    store.replace({"a": record("cluster"), "b": record("cluster")})
    store.replace({"a": record("file")}, "file")
    assert [one.argon2 for one in store.live("a")] == [hashed("file")]
    assert [one.argon2 for one in store.live("b")] == [hashed("cluster")]
    store.replace({})
    assert not store.knows("b")
    assert store.knows("a")


def test_hashes_do_not_show_in_representations() -> None:
    store = UserStore()
    store.replace({"a": record("1")})
    assert "argon2id" not in repr(store.live("a"))


# --- The file


@pytest.mark.covers("EMS-SEC-B14")
def test_a_file_holds_names_with_one_hash_or_several_or_none() -> None:
    text = f"""
alice: {hashed("1")}
"no":
  - {hashed("2")}
  - argon2: {hashed("3")}
    not_after: 2027-01-31T12:00:00Z
  - {{argon2: "{hashed("4")}", not_after_ms: 5}}
carol: []
"""
    users = parse_users(text, "f")
    assert list(users) == ["alice", "no", "carol"]
    assert [one.argon2 for one in users["alice"].credentials] == [hashed("1")]
    assert [one.not_after_ms for one in users["no"].credentials] == [None, 1_801_396_800_000, 5]
    assert users["carol"].credentials == ()
    assert parse_users("", "f") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alice: s3cret", "f:1:1: alice: hash 1: is no argon2id hash"),
        ("\nalice: {a: s3cret}", "f:2:1: alice: is neither a hash nor a list"),
        ("alice: 17", "is neither a hash"),
        ("alice: []\nalice: []", "stands twice"),
        ("- alice", "one mapping"),
        ("a: []\n---\nb: []", "one mapping"),
        ("a: [s3cret", "not valid YAML"),
        ("'a:b': []", "colon"),
        (f"a: [{{argon2: '{hashed('1')}', not_after: tomorrow}}]", "'not_after' is no time"),
        (f"a: [{{argon2: '{hashed('1')}', not_after: 2027-01-31T12:00:00}}]", "names no time zone"),
        (f"a: [{{argon2: '{hashed('1')}', until: 5}}]", "a field that nobody knows"),
    ],
)
def test_a_wrong_file_says_where_and_why_and_repeats_nothing(text: str, why: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_users(text, "f")
    assert why in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert hashed("1") not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, users_file: Callable[..., Path]) -> None:
    with pytest.raises(AccessError, match=r"--users .*/missing: No such file"):
        read_users(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(AccessError, match=r"--users .*/binary: is no UTF-8"):
        read_users(tmp_path / "binary")
    assert list(read_users(users_file(alice="1"))) == ["alice"]
