"""The work queue, with a clock that the test moves."""

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sterna_operator.keys import Key
from sterna_operator.objects import Objects
from sterna_operator.wakeups import flow_of
from sterna_operator.work_queue import Backoff, Item, Priority, TokenBucket, WorkQueue


class Clock:
    """The time, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, **settings: object) -> WorkQueue:
    return WorkQueue(clock=clock, chance=lambda: 1.0, **settings)  # type: ignore[arg-type]


def key(name: str) -> Key:
    return Key("Queue", "ns", name)


def taken(queue: WorkQueue) -> list[str]:
    names = []
    while (item := queue.pop()) is not None:
        names.append(item.key.name)
    return names


def test_the_more_urgent_goes_first_and_equals_in_the_order_they_came(clock: Clock) -> None:
    queue = make(clock)
    for name, priority in (
        ("resync", Priority.RESYNC),
        ("drift", Priority.DRIFT),
        ("first", Priority.USER_CHANGE),
        ("reference", Priority.REFERENCE),
        ("second", Priority.USER_CHANGE),
    ):
        queue.add(key(name), priority)
    assert taken(queue) == ["first", "second", "reference", "drift", "resync"]


def test_nobody_waits_behind_a_thousand_objects_of_somebody_else(clock: Clock) -> None:
    queue = make(clock)
    for number in range(1_000):
        queue.add(Key("Queue", "theirs", f"q-{number}"), Priority.USER_CHANGE)
    queue.add(Key("Queue", "mine", "first"), Priority.USER_CHANGE)
    queue.add(Key("Queue", "mine", "second"), Priority.USER_CHANGE)
    names = taken(queue)
    assert names.index("first") < 3
    assert names.index("second") < 5
    assert len(names) == 1_002
    assert [name for name in names if name.startswith("q-")] == [f"q-{number}" for number in range(1_000)]


def test_no_priority_starves(clock: Clock) -> None:
    queue = make(clock)
    for number in range(1_000):
        queue.add(key(f"q-{number}"), Priority.USER_CHANGE)
    for priority in (Priority.RESYNC, Priority.DRIFT, Priority.REFERENCE):
        queue.add(key(priority.name), priority)
    names = taken(queue)
    places = {priority: names.index(priority.name) for priority in Priority if priority.name in names}
    assert places[Priority.REFERENCE] == 3
    assert places[Priority.DRIFT] <= 16
    assert places[Priority.RESYNC] <= 64


def test_a_new_queue_is_done_beside_a_thousand_deletions_in_the_same_namespace(clock: Clock) -> None:
    """Each is looked at when its user acts, and once more when brokers have said what they have made of it."""
    objects = Objects()
    queue = make(clock, flow_of=partial(flow_of, objects))
    for number in range(1_000):
        metadata = {"name": f"q-{number}", "namespace": "ns", "resourceVersion": "1", "deletionTimestamp": "now"}
        objects.put({"apiVersion": "a", "kind": "Queue", "metadata": metadata})
        queue.add(key(f"q-{number}"), Priority.USER_CHANGE)
    objects.put(
        {"apiVersion": "a", "kind": "Queue", "metadata": {"name": "new", "namespace": "ns", "resourceVersion": "1"}}
    )
    queue.add(key("new"), Priority.USER_CHANGE)
    looks, of_new = 0, 0
    while of_new < 2:
        item = queue.pop()
        assert item is not None
        looks += 1
        of_new += item.key.name == "new"
        queue.done(item.key)
        if item.priority is Priority.USER_CHANGE:
            queue.add(item.key, Priority.REFERENCE)
    assert looks < 20


def test_a_key_stands_in_it_once_with_the_most_urgent_priority(clock: Clock) -> None:
    queue = make(clock)
    queue.add(key("a"), Priority.RESYNC)
    queue.add(key("b"), Priority.DRIFT)
    queue.add(key("a"), Priority.USER_CHANGE)
    queue.add(key("a"), Priority.RESYNC)
    assert queue.depth()[Priority.USER_CHANGE] == 1
    assert taken(queue) == ["a", "b"]


def test_a_key_that_is_worked_on_is_not_handed_out_and_comes_again_if_it_was_added(clock: Clock) -> None:
    queue = make(clock)
    queue.add(key("a"), Priority.DRIFT)
    assert taken(queue) == ["a"]
    queue.add(key("a"), Priority.RESYNC)
    queue.add(key("a"), Priority.USER_CHANGE)
    assert queue.pop() is None
    queue.done(key("a"))
    again = queue.pop()
    assert again is not None
    assert again.priority is Priority.USER_CHANGE
    queue.done(key("a"))
    assert queue.is_idle


def test_failures_wait_longer_each_time_up_to_a_bound_and_success_forgets_them(clock: Clock) -> None:
    queue = make(clock, backoff=Backoff(first_s=1.0, max_s=5.0))
    delays = []
    queue.add(key("a"), Priority.USER_CHANGE)
    for _ in range(5):
        assert taken(queue) == ["a"]
        delays.append(queue.failed(key("a")))
        assert queue.pop() is None
        clock.now += delays[-1]
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert taken(queue) == ["a"]
    queue.done(key("a"))
    assert queue.failures(key("a")) == 0


def test_what_is_held_back_waits_for_drift_but_not_for_its_user(clock: Clock) -> None:
    queue = make(clock, backoff=Backoff(first_s=30.0))
    queue.add(key("a"), Priority.RESYNC)
    queue.pop()
    queue.failed(key("a"))
    queue.add(key("a"), Priority.DRIFT)
    assert queue.pop() is None
    queue.add(key("a"), Priority.REFERENCE)
    assert taken(queue) == ["a"]
    # The old appointment is void: it does not come a second time.
    queue.done(key("a"))
    clock.now += 60.0
    assert queue.pop() is None


def test_the_server_may_ask_for_a_longer_wait(clock: Clock) -> None:
    queue = make(clock)
    queue.add(key("a"), Priority.USER_CHANGE)
    queue.pop()
    assert queue.failed(key("a"), not_before_s=7.0) == 7.0
    queue.add(key("a"), Priority.REFERENCE)
    assert queue.pop() is None
    queue.add(key("a"), Priority.USER_CHANGE)
    assert taken(queue) == ["a"]
    queue.failed(key("a"))
    queue.add(key("b"), Priority.REFERENCE)
    assert taken(queue) == ["b"]


def test_of_two_appointments_the_earlier_counts(clock: Clock) -> None:
    queue = make(clock)
    queue.add_after(key("a"), 10.0, Priority.DRIFT)
    queue.add_after(key("a"), 3.0, Priority.DRIFT)
    queue.add_after(key("a"), 20.0, Priority.DRIFT)
    assert queue.wait_s() == 3.0
    clock.now += 3.0
    assert taken(queue) == ["a"]
    queue.done(key("a"))
    clock.now += 30.0
    assert queue.pop() is None


def test_the_background_is_slowed_down_and_users_are_not(clock: Clock) -> None:
    queue = make(clock, bucket=TokenBucket(rate=10.0, burst=2.0))
    for number in range(5):
        queue.add(key(f"background-{number}"), Priority.RESYNC)
    for number in range(5):
        queue.add(key(f"user-{number}"), Priority.USER_CHANGE)
    assert len(taken(queue)) == 5 + 2
    assert queue.wait_s() == pytest.approx(0.1)
    clock.now += 0.2
    assert len(taken(queue)) == 2


async def test_get_waits_for_a_key_and_wakes_every_waiter() -> None:
    queue = WorkQueue()
    waiters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for name in "abc":
        queue.add(key(name), Priority.DRIFT)
    items: list[Item] = await asyncio.wait_for(asyncio.gather(*waiters), 5)
    assert sorted(item.key.name for item in items) == ["a", "b", "c"]


async def test_get_wakes_at_an_appointment() -> None:
    queue = WorkQueue()
    queue.add_after(key("a"), 0.05, Priority.DRIFT)
    item = await asyncio.wait_for(queue.get(), 5)
    assert item.key == key("a")


_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "later", "pop", "done", "failed", "wait"]),
        st.sampled_from("abcd"),
        st.sampled_from(list(Priority)),
    ),
    max_size=60,
)


@given(_ACTIONS)
def test_nothing_is_lost_and_nothing_is_worked_on_twice_at_once(actions: list[tuple[str, str, Priority]]) -> None:
    clock = Clock()
    queue = make(clock, backoff=Backoff(first_s=1.0, max_s=4.0), bucket=TokenBucket(rate=100.0, burst=5.0))
    working: set[Key] = set()
    owed: set[Key] = set()
    for action, name, priority in actions:
        one = key(name)
        if action in ("add", "later"):
            owed.add(one)
            queue.add(one, priority) if action == "add" else queue.add_after(one, 2.0, priority)
        elif action == "pop":
            item = queue.pop()
            if item is not None:
                assert item.key not in working
                working.add(item.key)
                owed.discard(item.key)
        elif action == "wait":
            clock.now += 0.5
        elif one in working:
            working.discard(one)
            if action == "done":
                queue.done(one)
            else:
                queue.failed(one)
                owed.add(one)
    for one in working:
        queue.done(one)
    # Given time, everything that is owed is handed out.
    seen: set[Key] = set()
    for _ in range(100):
        clock.now += 0.5
        while (item := queue.pop()) is not None:
            seen.add(item.key)
            queue.done(item.key)
    assert owed <= seen
    assert queue.is_idle


async def test_while_it_is_held_resyncs_wait_and_nothing_else_does(clock: Clock) -> None:
    queue = make(clock)
    queue.hold()
    queue.add(key("well"), Priority.RESYNC)
    queue.add(key("drift"), Priority.DRIFT)
    queue.add(key("new"), Priority.USER_CHANGE)
    assert taken(queue) == ["new", "drift"]
    # Nothing will come by waiting, so nobody asks again and again.
    assert queue.wait_s() is None
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.release()
    assert (await waiting).key == key("well")
