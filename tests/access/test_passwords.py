"""Hashes, what is accepted as one, and the command that makes them."""

import io

import pytest
from argon2 import PasswordHasher
from sterna.cli.application import run
from sterna_resources.passwords import Cost, HashError, cost_of, hash_password, user_fault

from tests.access.conftest import CHEAP


def test_a_hash_fits_its_password_alone_and_says_its_cost() -> None:
    made = hash_password("s3cret", CHEAP)
    assert made != hash_password("s3cret", CHEAP)
    assert cost_of(made) == CHEAP
    assert PasswordHasher().verify(made, "s3cret")
    assert "s3cret" not in made


def test_the_usual_cost_is_the_one_advised() -> None:
    assert cost_of(hash_password("s3cret")) == Cost(memory_kib=19_456, passes=2, lanes=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3cret", "is no argon2id hash"),
        ("$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "is no argon2id hash"),
        ("$argon2id$v=16$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "is no argon2id hash"),
        ("$argon2id$v=19$m=9999999,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "memory_kib 9999999"),
        ("$argon2id$v=19$m=64,t=99,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "passes 99"),
        ("$argon2id$v=19$m=1024,t=1,p=64$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "lanes 64"),
        ("$argon2id$v=19$m=4,t=1,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA", "less memory"),
        ("$argon2id$v=19$m=64,t=1,p=1$" + "a" * 600, "is no argon2id hash"),
    ],
)
def test_what_is_no_hash_or_costs_too_much_is_refused_without_being_repeated(text: str, why: str) -> None:
    with pytest.raises(HashError, match=why) as caught:
        cost_of(text)
    assert text not in str(caught.value)


@pytest.mark.covers("EMS-SEC-B06")
@pytest.mark.parametrize(("name", "fault"), [("", "empty"), ("a:b", "colon"), ("a" * 256, "255"), ("a\nb", "control")])
def test_names_of_users_have_rules(name: str, fault: str) -> None:
    assert fault in str(user_fault(name))


@pytest.mark.covers("EMS-SEC-B06")
@pytest.mark.parametrize("name", ["$admin", "a" * 255, "räuber", "a.b-c@d"])
def test_names_within_the_rules_are_taken(name: str) -> None:
    assert user_fault(name) is None


@pytest.mark.covers("EMS-SEC-B06")
def test_passwords_have_a_longest() -> None:
    with pytest.raises(ValueError, match="4096"):
        hash_password("a" * 4_097, CHEAP)
    assert hash_password("a" * 4_096, CHEAP)


@pytest.mark.covers("EMS-SEC-A14")
@pytest.mark.parametrize("weak", ["a", "1", " ", "aa", "password", "alice", "ä"])
def test_how_strong_a_password_is_nobody_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], weak: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{weak}\n"))
    assert run(["hash-password", "--user", "alice"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert PasswordHasher().verify(printed.out.strip().partition(": ")[2], weak)


def test_the_command_hashes_the_first_line_of_stdin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("s3cret\nnot this\n"))
    assert run(["hash-password", "--user", 'a"b']) == 0
    printed = capsys.readouterr().out
    name, _, made = printed.strip().partition(": ")
    assert name == r'"a\"b"'
    assert PasswordHasher().verify(made, "s3cret")


def test_the_command_refuses_an_empty_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert run(["hash-password"]) == 2
    assert "empty" in capsys.readouterr().err
