"""What `helm test` of the operator's chart asks of operators, and what it makes of what they say."""

import asyncio
import socket

import pytest
from sterna_operator.release_check import Answer, addresses, ask, checked, leads, main, objection

from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World

pytestmark = pytest.mark.slow_callbacks(30_000)


@pytest.mark.parametrize(
    ("answers", "replicas", "expected"),
    [
        ([Answer("a", leads=True)], 1, None),
        ([Answer("a", leads=True), Answer("b")], 2, None),
        ([Answer("a"), Answer("b", leads=True)], 1, None),
        ([], 1, "0 of 1 operators are there"),
        ([Answer("a", leads=True)], 2, "1 of 2 operators are there"),
        ([Answer("a"), Answer("b")], 2, "none of 2 operators leads"),
        ([Answer("a", leads=True), Answer("b", leads=True)], 2, "2 operators lead: a, b"),
        ([Answer("a", leads=True), Answer("b", "port 8080: refused")], 1, "b: port 8080: refused"),
        ([], 0, "none of 0 operators leads"),
    ],
)
def test_what_is_wrong_with_a_release(answers: list[Answer], replicas: int, expected: str | None) -> None:
    assert objection(answers, replicas) == expected


def test_who_leads_stands_in_the_figures() -> None:
    assert leads("# HELP sterna_operator_leading 1: this operator leads\nsterna_operator_leading 1.0\n")
    assert not leads("sterna_operator_leading 0.0\n")
    assert not leads("sterna_operator_leading_more 1.0\n")


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = ask("127.0.0.1", port)
    assert answer.fault.startswith(f"port {port}: ")
    assert main(["127.0.0.1", "--port", str(port), "--timeout-s", "0"]) == 1
    shown = capsys.readouterr()
    assert "not as it should be: 127.0.0.1" in shown.err
    # A name that nobody knows yet is no end: the Service was made a moment ago.
    assert addresses("nobody.invalid", 1) == []


async def test_one_of_two_operators_leads_and_both_are_ready(
    world: World, operator: MakeOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    first = operator()
    port = int(first.address.rpartition(":")[2])
    arguments = ["--port", str(port), "--timeout-s", "30"]
    assert await asyncio.to_thread(main, ["127.0.0.1", *arguments]) == 0
    assert "127.0.0.1: ready, and leads" in capsys.readouterr().out
    # A second one beside it, at another address with the same port, as pods have it.
    operator("second", listen=f"127.0.0.2:{port}")
    both = ["127.0.0.1", "127.0.0.2"]
    answers, wrong = await asyncio.to_thread(checked, lambda: both, port, 2, 30.0)
    assert (wrong, [one.leads for one in answers]) == (None, [True, False])
    first.kill()
    _, wrong = await asyncio.to_thread(checked, lambda: both, port, 2, 0.0)
    assert wrong is not None
    assert wrong.startswith("127.0.0.1: port ")
    answers, wrong = await asyncio.to_thread(checked, lambda: both[1:], port, 1, 60.0)
    assert (wrong, [one.leads for one in answers]) == (None, [True])
