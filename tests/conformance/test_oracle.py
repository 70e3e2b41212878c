"""A real broker beside the oracle; and that the oracle finds drivers that lie, and is found where it errs itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.oracle import Oracle, Session
from tests.conformance.oracle_backlog import Draft, Properties, Seen
from tests.conformance.oracle_driver import Client, Driver
from tests.conformance.oracle_machine import EXAMPLES, STEPS, EmsMachine, run
from tests.conformance.provider import Message, Provider
from tests.support.seeds import is_complete, seed

LIE_EXAMPLES = 60


@pytest.fixture
def machine(own_provider: tuple[asyncio.Runner, Provider]) -> type[EmsMachine]:
    """A machine over what these tests may kill."""

    class Machine(EmsMachine):
        pass

    Machine.runner, Machine.provider = own_provider
    return Machine


@pytest.mark.timeout(max(120, 10 * EXAMPLES))
def test_a_broker_shows_its_users_what_the_oracle_allows(machine: type[EmsMachine]) -> None:
    try:
        run(machine, EXAMPLES)
    except Exception as failure:
        drawn = f"SEED={seed()} SEEDS={EXAMPLES} STEPS={STEPS}"
        failure.add_note(f"run it again with: {drawn} .venv/bin/python -m pytest tests/conformance/test_oracle.py")
        raise


# --- That it finds what it is for


class DropsTheFlag(Driver):
    """No message was ever delivered before."""

    def seen(self, message: Message) -> Seen:
        return replace(super().seen(message), redelivered=False)


class CountsOneLess(Driver):
    """What comes again was delivered once less than it was."""

    def seen(self, message: Message) -> Seen:
        seen = super().seen(message)
        return replace(seen, count=max(seen.count - 1, 1))


class SwapsPriorities(Driver):
    """What is urgent is sent as if it could wait, and the other way round."""

    async def send(self, client: Client, name: str, draft: Draft) -> bool:
        swapped = {9: 0, 0: 9}.get(draft.priority, draft.priority)
        return await super().send(client, name, replace(draft, priority=swapped))


class LosesOneAtARestart(Driver):
    """The first message of a queue is taken away as the server starts."""

    async def restart(self, *arguments: Any, **more: Any) -> list[bool]:
        answers = await super().restart(*arguments, **more)
        thief = await self.connect("AUTO", is_named=False)
        if await self.provider.browse(self.names["first"]):  # type: ignore[arg-type]
            await (await thief.session.consumer(self.names["first"], prefetch=0)).receive()
        await thief.connection.close()
        return answers


class CommitsWhatIsRolledBack(Driver):
    """Of what a transaction sends the last is sent beside it."""

    async def send(self, client: Client, name: str, draft: Draft) -> bool:
        accepted = await super().send(client, name, draft)
        if accepted and client.mode == "TRANSACTED":
            return await super().send(await self.connect("AUTO", is_named=False), name, draft)
        return accepted


class KnowsNoPriority(Oracle):
    """It takes all messages for equally urgent."""

    def sent(self, session: Session, name: str, draft: Draft) -> None:
        super().sent(session, name, replace(draft, priority=4))


class NeverRunsFull(Oracle):
    """It knows no limits."""

    def define_queue(self, name: str, properties: Properties) -> None:
        super().define_queue(name, replace(properties, maxmsgs=0, maxbytes=0))


class LetsTransactionsThrough(Oracle):
    """What is rolled back it takes for sent."""

    def rollback(self, session: Session) -> None:
        self._put_sends(session)
        super().rollback(session)


class KeepsNothingUndelivered(Oracle):
    """What expires or comes too often it takes for destroyed, whoever asked."""

    def sent(self, session: Session, name: str, draft: Draft) -> None:
        super().sent(session, name, replace(draft, preserves=False))


class DeliversForEver(Oracle):
    """It knows no maxRedelivery."""

    def define_queue(self, name: str, properties: Properties) -> None:
        super().define_queue(name, replace(properties, max_redelivery=0))


#: Drivers that lie and oracles that err, and what is said of them.
WRONG: dict[type[Driver] | type[Oracle], str] = {
    DropsTheFlag: "flag and count",
    CountsOneLess: "flag and count",
    SwapsPriorities: "has priority",
    LosesOneAtARestart: "is missing",
    CommitsWhatIsRolledBack: "must not be there",
    KnowsNoPriority: "has priority",
    NeverRunsFull: "refused|not committed|is missing",
    LetsTransactionsThrough: "is missing",
    KeepsNothingUndelivered: "must not be there",
    DeliversForEver: "is missing",
}


def mistaken(machine: type[EmsMachine], wrong: type[Driver] | type[Oracle]) -> type[EmsMachine]:
    """That machine, with one of its parts exchanged."""
    if issubclass(wrong, Driver):
        machine.driver_class = wrong
    else:
        machine.oracle_class = wrong
    machine.patience_s = 0.3
    return machine


def story(machine: type[EmsMachine]) -> None:
    """A few steps in which each of them shows."""
    kept = ("PERSISTENT", "", True, "red", 1)
    told: Any = machine()  # hypothesis says nothing of its rules' types
    try:
        told.define(Properties(max_redelivery=2), Properties(maxmsgs=3), Properties(), "")
        told.send(slot=0, name="first", outline=[(9, *kept), (0, *kept), (4, *kept)])
        for count in (2, 1):
            told.receive(slot=1, source="first", selector="", prefetch=0, count=count)
            told.end_transaction_or_recover(slot=1, commits=False)
            told.agree()
        told.send(slot=0, name="second", outline=[(4, "PERSISTENT", "short", True, None, 1)])
        told.send(slot=2, name="first", outline=[(4, *kept)])
        told.end_transaction_or_recover(slot=2, commits=False)
        told.agree()
        told.restart(
            is_kill=True, slot=0, outline=[(4, *kept)], place="first", number=0, rounds=100, acknowledges=False
        )
        told.agree()
        told.send(slot=0, name="second", outline=[(4, *kept)] * 4)
        told.agree()
    finally:
        told.teardown()


def test_a_story_is_as_the_oracle_has_it(machine: type[EmsMachine]) -> None:
    story(machine)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_seen_in_the_story(machine: type[EmsMachine], wrong: type[Driver] | type[Oracle]) -> None:
    with pytest.raises(AssertionError, match=WRONG[wrong]):
        story(mistaken(machine, wrong))


if is_complete():
    # Each takes a quarter of a minute or more, most of it in waiting for what does not come.

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("wrong", WRONG)
    def test_what_is_wrong_is_found_by_chance(machine: type[EmsMachine], wrong: type[Driver] | type[Oracle]) -> None:
        with pytest.raises(AssertionError, match=WRONG[wrong]):
            run(mistaken(machine, wrong), LIE_EXAMPLES, report_multiple_bugs=False)
