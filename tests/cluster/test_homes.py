"""Homes under races, by several members that see etcd's changes late: each name has one home, whoever asks when."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sterna_broker.cluster import homes as homes_module
from sterna_broker.cluster import placement
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.link import StoreLink
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.cluster.view import Stored, View
from sterna_broker.refusals import RefusedError
from sterna_etcd import Delete, EtcdSettings, HomeKey, NoSpaceError, Put
from sterna_etcd.records import BrokerRecord, HomeRecord

from tests.cluster.conftest import LAYOUT
from tests.etcds import RunningEtcd
from tests.support.deaf_etcd import DeafEtcd
from tests.support.refusing_etcd import RefusingEtcd
from tests.waiting import eventually

BROKERS = ("b0", "b1", "b2")


@pytest.fixture
def store(tier_etcd: None, tmp_path: Path) -> Iterator[RunningEtcd]:
    """An etcd of one member."""
    with RunningEtcd(tmp_path / "etcd") as running:
        yield running


@pytest.fixture
async def members(store: RunningEtcd, tmp_path: Path) -> AsyncIterator[list[Homes]]:
    """Three members without engines; all know of each other."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for name in BROKERS:
            folder = tmp_path / name
            folder.mkdir()
            link = StoreLink(ClusterOptions(EtcdSettings.of_urls(store.urls), "c1", name), folder)
            stack.push_async_callback(link.stop)
            await link.start()
            homes = Homes(link.view, link.etcd, link.identity, name)
            link.heard = homes.told
            made.append(homes)
            await link.etcd.transact([], [Put(LAYOUT.broker(name), record_of(name).encode())])
        await eventually(lambda: all(homes.view.live == list(BROKERS) for homes in made), what="all members")
        yield made


def record_of(name: str) -> BrokerRecord:
    """A broker that lives."""
    return BrokerRecord(addresses=[f"sterna://{name}:7222"], version="1", incarnation="i", started_ms=1)


async def asked(homes: Homes, key: HomeKey) -> str:
    """The home that a member names; the refusal's code if it refuses."""
    try:
        return await homes.of(key)
    except RefusedError as refused:
        return refused.code


async def test_all_who_ask_at_once_are_told_the_same(members: list[Homes]) -> None:
    keys = [HomeKey("queue", f"q{number}") for number in range(30)]
    told = await asyncio.gather(*(asked(homes, key) for key in keys for homes in members))
    for position in range(len(keys)):
        assert len(set(told[3 * position : 3 * position + 3])) == 1
    # And they are spread, although all decided at the same time.
    counts = [told[::3].count(name) for name in BROKERS]
    assert sum(counts) == len(keys)
    assert min(counts) > 0


async def test_a_topic_and_a_pattern_that_matches_it_never_end_on_two_brokers(members: list[Homes]) -> None:
    for number in range(10):
        topic, pattern = HomeKey("topic", f"app.{number}.x"), HomeKey("pattern", f"app.{number}.*")
        other = HomeKey("topic", f"app.{number}.y")
        homes = await asyncio.gather(
            asked(members[0], topic), asked(members[1], pattern), asked(members[2], other), asked(members[0], pattern)
        )
        placed = {home for home in (homes[0], homes[2]) if home in BROKERS}
        assert {homes[0], homes[2]} <= set(BROKERS)
        assert homes[1] == homes[3]
        # Either all are together, or the topics were there first, apart, and the pattern is refused.
        assert (homes[1] == "SPANS_HOMES") == (len(placed) > 1)
        assert len(placed | {homes[1]} - {"SPANS_HOMES"}) == len(placed)


async def test_a_plan_that_was_overtaken_is_not_carried_out(members: list[Homes]) -> None:
    topic, pattern = HomeKey("topic", "app.x"), HomeKey("pattern", "app.*")
    home = await members[1].of(pattern)
    await eventually(lambda: members[0].view.home("pattern", "app.*") == home, what="the pattern to be known")
    elsewhere = next(name for name in BROKERS if name != home)
    await members[0].claim_all({topic: elsewhere}, (), is_plan=True)
    assert members[0].view.home("topic", "app.x") is None
    # What is there already is where it is.
    await members[0].claim_all({topic: elsewhere}, ())
    assert members[0].view.home("topic", "app.x") == elsewhere


async def test_whoever_asks_while_a_name_moves_waits_for_its_new_home(members: list[Homes]) -> None:
    key = HomeKey("queue", "moving")
    name = await members[0].of(key)
    home = next(homes for homes in members if homes.name == name)
    await eventually(lambda: home.view.home("queue", "moving") == home.name, what="its home to know")
    target = next(name for name in BROKERS if name != home.name)
    asking: list[asyncio.Task[str]] = []

    def leave() -> bool:
        asking.append(asyncio.create_task(asked(home, key)))
        return True

    assert await home.move(key, target, leave)
    assert await asking[0] == target


async def test_a_home_that_is_given_up_can_be_anywhere(members: list[Homes]) -> None:
    key = HomeKey("queue", "short-lived")
    name = await members[0].of(key)
    home = next(homes for homes in members if homes.name == name)
    await eventually(lambda: home.view.home("queue", key.name) == name, what="its home to know")
    await home.release(key, lambda: False)
    assert home.view.home("queue", key.name) == name
    await home.release(key, lambda: True)

    def all_know() -> bool:
        return all(homes.view.home("queue", key.name) is None for homes in members)

    await eventually(all_know, what="all to know")


async def owner(members: list[Homes], key: HomeKey) -> Homes:
    """The member that a new name lives on, once it knows."""
    name = await members[0].of(key)
    home = next(homes for homes in members if homes.name == name)
    await eventually(lambda: home.view.home(key.kind, key.name) == name, what="its home to know")
    return home


@pytest.mark.parametrize(("moves", "does"), [(True, True), (True, False), (False, False)])
async def test_a_home_whose_change_has_no_answer_is_opened_nowhere_until_etcd_answers(
    members: list[Homes], monkeypatch: pytest.MonkeyPatch, moves: bool, does: bool
) -> None:
    key = HomeKey("queue", "doubtful")
    home = await owner(members, key)
    target = next(name for name in BROKERS if name != home.name)
    etcd = DeafEtcd(home._etcd, does=does)
    monkeypatch.setattr(home, "_etcd", etcd)
    monkeypatch.setattr(homes_module, "_DOUBT_PAUSE_S", 0.01)
    assert home.epoch(key)
    home.view.changed.clear()
    await (home.move(key, target, lambda: True) if moves else home.release(key, lambda: True))
    assert home.epoch(key) == 0
    assert home.view.changed == {"homes"}  # what is kept for a start without etcd is written anew
    if does:
        # The watch tells what etcd's answer did not: what is asked for still can change nothing any more.
        await eventually(lambda: home.view.home("queue", key.name) != home.name, what="the watch to tell")
    assert await asked(home, key) == (target if does else "UNAVAILABLE")
    assert home.is_leaving(key) != does
    assert home.leaving == (set() if does else {key})
    # Whoever tries again meanwhile does not take it out once more.
    await home.move(key, target, lambda: pytest.fail("it has left already"))
    await eventually(lambda: etcd.asked > 2, what="etcd to be asked again")
    assert await asked(home, key) == (target if does else "UNAVAILABLE")
    etcd.hears = True
    await eventually(lambda: not home._deciding, what="etcd to have said whose it is")
    assert not home.is_leaving(key)
    assert home.view.home("queue", key.name) == (target if moves else None)
    if moves:
        assert await asked(home, key) == target


async def test_what_etcd_says_was_not_done_is_ours(members: list[Homes], monkeypatch: pytest.MonkeyPatch) -> None:
    key = HomeKey("queue", "kept")
    home = await owner(members, key)

    async def refuses(*_: Any) -> Any:
        raise NoSpaceError("no space")

    monkeypatch.setattr(home._etcd, "transact", refuses)
    assert not await home.move(key, next(name for name in BROKERS if name != home.name), lambda: True)
    assert not home.is_leaving(key)
    assert await home.of(key) == home.name


async def test_what_follows_others_is_not_ours_again_where_etcd_refuses_for_now(
    members: list[Homes], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = HomeKey("topic", "following")
    home = await owner(members, key)
    target = next(name for name in BROKERS if name != home.name)
    etcd = RefusingEtcd(home._etcd, LAYOUT.home(key.kind, key.name))
    monkeypatch.setattr(home, "_etcd", etcd)
    monkeypatch.setattr(homes_module, "_DOUBT_PAUSE_S", 0.01)
    home.on_back = lambda: pytest.fail("it does not come back")
    assert not await home.move(key, target, lambda: True, is_bound=True)
    assert home.has_doubts
    assert await asked(home, key) == "UNAVAILABLE"
    etcd.has_room = True
    await eventually(lambda: not home.is_leaving(key), what="etcd to have taken it")
    assert await asked(home, key) == target


async def test_a_home_that_came_back_is_ours_whatever_becomes_of_its_former_change(
    members: list[Homes], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = HomeKey("queue", "returning")
    home = await owner(members, key)
    path, real, target = LAYOUT.home(key.kind, key.name), home._etcd, next(one for one in BROKERS if one != home.name)
    etcd = DeafEtcd(real, does=True)
    monkeypatch.setattr(home, "_etcd", etcd)
    monkeypatch.setattr(homes_module, "_DOUBT_PAUSE_S", 0.01)
    for _ in range(2):
        # It goes, nobody says so but the watch, and somebody gives it back.
        await home.move(key, target, lambda: True)
        await eventually(lambda: home.view.home(key.kind, key.name) == target, what="the watch to tell")
        assert await asked(home, key) == target
        await real.transact([], [Put(path, HomeRecord(broker=home.name).encode())])
        await eventually(lambda: home.view.home(key.kind, key.name) == home.name, what="it to be given back")
        assert not home.is_leaving(key)
        assert home.leaving == frozenset()
        assert home.epoch(key)
        assert await asked(home, key) == home.name
    await home.move(key, target, lambda: True)
    deciding = list(home._deciding)
    etcd.hears = True
    # Each ends well: the first to end does not take from the others what they have begun.
    await asyncio.gather(*deciding)
    assert not home._leaving
    assert await asked(home, key) == target


async def test_a_home_that_nobody_began_to_ask_about_keeps_nobody_waiting(members: list[Homes]) -> None:
    key = HomeKey("queue", "stopping")
    home = await owner(members, key)
    moving = asyncio.create_task(home.move(key, next(one for one in BROKERS if one != home.name), lambda: True))
    await asyncio.sleep(0)
    assert home.is_leaving(key)
    await home.stop()
    async with asyncio.timeout(5):
        assert not await moving
    assert await asked(home, key) == "UNAVAILABLE"


async def test_a_home_that_is_gone_when_its_change_begins_is_nobodys(members: list[Homes]) -> None:
    key = HomeKey("queue", "gone")
    home = await owner(members, key)
    path = LAYOUT.home(key.kind, key.name)

    def leave() -> bool:
        # As the watch tells it in the same moment.
        del home.view.homes[key]
        return True

    await home._etcd.transact([], [Delete(path)])
    assert not await home.move(key, next(name for name in BROKERS if name != home.name), leave)
    assert not home._leaving
    assert (await home._etcd.get(path)).found is None


async def test_a_home_that_was_changed_meanwhile_is_not_ours_because_what_is_there_cannot_be_read(
    members: list[Homes], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = HomeKey("queue", "gone")
    home = await owner(members, key)
    etcd = DeafEtcd(home._etcd, does=True)

    async def answers(*arguments: Any) -> Any:
        return await etcd._etcd.transact(*arguments)

    # Changes are answered, and reads are not; and the watch tells nothing of it in time.
    monkeypatch.setattr(etcd, "transact", answers)
    monkeypatch.setattr(home, "_etcd", etcd)
    monkeypatch.setattr(homes_module, "_DOUBT_PAUSE_S", 0.01)
    known = home.view.homes[key]
    await members[0]._etcd.transact([], [Delete(LAYOUT.home(key.kind, key.name))])
    await eventually(lambda: key not in home.view.homes, what="the watch to tell, which is to be late")
    home.view.homes[key] = known
    assert not await home.move(key, next(name for name in BROKERS if name != home.name), lambda: True)
    assert home.epoch(key) == 0
    assert await asked(home, key) == "UNAVAILABLE"
    etcd.hears = True
    await eventually(lambda: not home.is_leaving(key), what="etcd to have said whose it is")
    assert home.view.home(key.kind, key.name) is None


@pytest.mark.parametrize("in_doubt", [True, False])
async def test_a_home_that_nobody_asks_about_any_more_is_refused_and_keeps_nobody_waiting(
    members: list[Homes], monkeypatch: pytest.MonkeyPatch, in_doubt: bool
) -> None:
    key = HomeKey("queue", "stopping")
    home = await owner(members, key)
    deaf = DeafEtcd(home._etcd, does=False)
    if not in_doubt:
        monkeypatch.setattr(deaf, "transact", lambda *_: asyncio.Event().wait())
    monkeypatch.setattr(home, "_etcd", deaf)
    releasing = asyncio.create_task(home.release(key, lambda: True))
    waiting = asyncio.create_task(asked(home, key))
    await eventually(lambda: home.is_leaving(key) and (not in_doubt or releasing.done()), what="it to leave")
    await home.stop()
    async with asyncio.timeout(5):
        await releasing
        assert await waiting == "UNAVAILABLE"
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "give-home-up"]
    async with asyncio.timeout(5):
        assert await asked(home, key) == "UNAVAILABLE"


async def test_without_etcd_a_known_home_is_told_and_a_new_one_refused(
    members: list[Homes], store: RunningEtcd
) -> None:
    key = HomeKey("queue", "known")
    home = await members[0].of(key)
    await asyncio.to_thread(store.first.kill)
    assert await members[0].of(key) == home
    assert await asked(members[0], HomeKey("queue", "new")) == "UNAVAILABLE"


async def test_a_claim_whose_askers_have_gone_fails_without_a_word(members: list[Homes], store: RunningEtcd) -> None:
    """As at a broker's stop: nobody is left to be told, and it must not look as if something had been overlooked."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    store.first.freeze()
    asking = asyncio.create_task(members[0].of(HomeKey("queue", "orders")))
    await asyncio.wait((asking,), timeout=0.2)
    [claim] = [task for task in asyncio.all_tasks() if task.get_name() == "claim-home"]
    asking.cancel()
    await asyncio.wait((asking,))
    await members[0]._etcd.close()  # as its link does
    await asyncio.wait((claim,))
    store.first.thaw()
    del claim, asking
    gc.collect()
    assert told == []


def view_of(homes: dict[HomeKey, str], brokers: tuple[str, ...] = BROKERS, drained: tuple[str, ...] = ()) -> View:
    """What a member sees."""
    view = View(LAYOUT)
    view.brokers = {name: Stored(record_of(name), 1, 1) for name in brokers}
    view.drains = {name: Stored(None, 1, 1) for name in drained}
    view.homes = {key: Stored(HomeRecord(broker=broker), 1, 1) for key, broker in homes.items()}
    return view


def test_the_least_loaded_broker_that_is_not_being_emptied_is_chosen() -> None:
    homes = {HomeKey("queue", "a"): "b0", HomeKey("queue", "b"): "b2"}
    loaded: Callable[..., str | None] = lambda *drained: placement.least_loaded(  # noqa: E731
        placement.loads(view_of(homes, drained=drained))
    )
    assert loaded() == "b1"
    assert loaded("b1") == "b0"
    assert loaded("b0", "b1", "b2") is None
