"""The producer's machine by itself: every short sequence of events, long random ones, and its table."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sterna import errors
from sterna._machines.producing import OPEN, TRANSITIONS, Entry, Event, Opened, Producing, State
from sterna._machines.publishing import Ahead, Chunks, InFlight, Outbox, Run
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.unit.producing_story import EVENTS, Story

_LENGTH = 6


def _told(letters: str, credit: int) -> Story | None:
    """The story of these events; None when the last of them cannot happen there."""
    story = Story(credit)
    for letter in letters[:-1]:
        EVENTS[letter](story)
    if letters and not EVENTS[letters[-1]](story):
        return None
    story.check()
    return story


def _stories(credit: int, length: int) -> Iterator[tuple[str, Story]]:
    """Each sequence of events that can happen, behind one that begins with messages or a link, with its story."""
    layer = [""]
    for _ in range(length):
        found = []
        for before in layer:
            for letter in EVENTS:
                try:
                    story = _told(before + letter, credit)
                except AssertionError as error:
                    raise AssertionError(f"after {before + letter!r} with credit {credit}: {error}") from error
                if story is not None:
                    found.append(before + letter)
                    yield before + letter, story
        layer = found


def _end_all(credit: int, length: int) -> int:
    count = 0
    for letters, story in _stories(credit, length):
        try:
            story.end()
        except AssertionError as error:
            raise AssertionError(f"the end of {letters!r} with credit {credit}: {error}") from error
        count += 1
    return count


@pytest.mark.parametrize("credit", [0, 2], ids=["no limit", "credit for two"])
def test_whatever_happens_in_short_nothing_is_lost_or_doubled(credit: int) -> None:
    assert _end_all(credit, _LENGTH) > 1000


def test_the_defect_of_numbers_that_go_on_over_gaps_is_found() -> None:
    from tests.world import defects

    with defects.put_back(1), pytest.raises(AssertionError, match=r"number \d came|of another message"):
        _end_all(0, 5)


def test_the_table_says_each_step_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[State, Event]] = set()
    step = Producing._to

    def noted(self: Producing, event: Event) -> None:
        taken.add((self.state, event))
        step(self, event)

    monkeypatch.setattr(Producing, "_to", noted)
    _end_all(0, 4)
    _end_all(2, 4)
    listed = {(state, event) for state, events in TRANSITIONS.items() for event in events}
    assert taken <= listed
    # What is left comes from calls that a story has no reason to make: the face may come late with any of them.
    assert {(state, event) for state, event in listed - taken if state in OPEN} == set()


def test_all_states_can_be_reached_and_only_one_is_never_left() -> None:
    reached, before = {State.NEW}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {after for state in reached for after in TRANSITIONS[state].values()}
    assert reached == set(State)
    assert [one for one in State if set(TRANSITIONS[one].values()) == {one}] == [State.CLOSED]
    assert set(TRANSITIONS) == set(State)


class Walk(RuleBasedStateMachine):
    """Long stories, with any number of messages at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()

    @rule(credit=st.sampled_from([0, 1, 3, 10]))
    @precondition(lambda self: self.story.machine.incarnation == 0 and not self.story.given)
    def with_credit(self, credit: int) -> None:
        self.story.credit = credit

    @rule(count=st.integers(1, 6))
    def give(self, count: int) -> None:
        self.story.give(count)

    @rule()
    def open(self) -> None:
        self.story.open()

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        self.story.take(count)

    @rule(count=st.integers(1, 6))
    def confirm(self, count: int) -> None:
        self.story.confirm(count)

    @rule()
    def refuse(self) -> None:
        self.story.refuse()

    @rule()
    def put_off(self) -> None:
        self.story.put_off()

    @rule(gives_up=st.booleans())
    def due(self, gives_up: bool) -> None:
        if not (gives_up and self.story.give_up()):
            self.story.due()

    @rule(count=st.integers(1, 4))
    def raise_credit(self, count: int) -> None:
        self.story.raise_credit(count)

    @rule(how=st.sampled_from(["lose", "lose", "lose", "forget", "move"]))
    def break_off(self, how: str) -> None:
        getattr(self.story, how)()

    @invariant()
    def holds(self) -> None:
        self.story.check()

    def teardown(self) -> None:
        self.story.end()


TestWalk = Walk.TestCase


def _opened(machine: Producing, incarnation: int = 5, *, sequences: int = 0, size: int = 0, anew: bool = True) -> None:
    machine.opened(Opened(incarnation, b"token", "ID:", 0, sequences, size), 7, Outbox(), anew=anew)


def _runs(machine: Producing) -> list[tuple[int, list[bytes]]]:
    """What the link takes to be written: those frames grow no more."""
    runs = [(one.first, one.messages) for one in machine.frames if isinstance(one, Run)]
    machine.run = None
    machine.frames.clear()
    return runs


def test_each_message_is_sent_again_under_its_own_number_and_the_gaps_are_said() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine)
    for number in range(1, 8):
        machine.give(b"%d" % number)
    assert _runs(machine) == [(1, [b"1", b"2", b"3", b"4", b"5", b"6", b"7"])]
    machine.confirmed(1, 1)
    assert [sequence for sequence, _ in machine.refused(3, 3)] == [3]
    machine.confirmed(6, 7)
    machine.lost()
    machine.give(b"8")
    known = machine.opening()
    assert known is not None
    assert (known.first_unconfirmed, known.left_out) == (2, ((3, 3), (6, 7)))
    _opened(machine, anew=False)
    assert _runs(machine) == [(2, [b"2"]), (4, [b"4", b"5"]), (8, [b"8"])]


@pytest.mark.covers("EMS-MSG-E01")
def test_what_has_a_name_keeps_its_numbers_wherever_it_goes() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine)
    machine.lost()
    for number in range(1, 5):
        machine.give(b"%d" % number)
    machine.confirmed(1, 1)
    machine.refused(3, 3)
    machine.moved()
    assert (machine.first_left, machine.left_out) == (2, ((3, 3),))
    machine.opened(Opened(6, b"token", "ID:", 0, 0, 0), 7, Outbox(), anew=True, first=2, keeps=True)
    machine.give(b"5")
    assert _runs(machine) == [(2, [b"2"]), (4, [b"4", b"5"])]
    assert [sequence for sequence, _ in machine.refused(2, 5)] == [2, 4, 5]


def test_what_is_sent_again_goes_no_further_than_the_credit_in_numbers() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    for number in range(1, 6):
        machine.give(b"%d" % number)
    _opened(machine, sequences=3)
    assert _runs(machine) == [(1, [b"1", b"2", b"3"])]
    assert (machine.state, machine.has_room(1)) == (State.CATCHING_UP, False)
    machine.credit(10, 0)
    assert _runs(machine) == [(4, [b"4", b"5"])]
    assert (machine.state, machine.has_room(1)) == (State.SERVING, True)


def test_what_the_broker_had_before_a_break_is_in_doubt_when_it_then_gives_the_destination_away() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine)
    for number in range(1, 5):
        machine.give(b"%d" % number)
    machine.lost()
    machine.opened(Opened(5, b"token", "ID:", 2, 0, 0), 7, Outbox(), anew=False)
    assert machine.moved() == [(1, b"1"), (2, b"2")]
    _opened(machine, 9)
    assert _runs(machine)[-1] == (1, [b"3", b"4"])


def test_what_was_sent_beside_what_is_put_off_counts_as_sent() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine, size=3)
    for number in range(1, 4):
        machine.give(b"%d" % number)
    assert machine.put_off(1, 1)
    machine.due()
    assert (machine.state, _runs(machine)) == (State.CATCHING_UP, [(1, [b"1", b"2", b"3"])])
    machine.lost()
    # 2 and 3 may have arrived, although 1, which is to go first, has not been sent again.
    assert [sequence for sequence, _ in machine.forgotten()] == [1, 2, 3]


def test_what_was_put_off_goes_before_what_had_waited_for_credit_and_before_what_is_given_meanwhile() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    for number in range(1, 5):
        machine.give(b"%d" % number)
    _opened(machine, size=2)
    assert _runs(machine) == [(1, [b"1", b"2"])]
    assert machine.put_off(1, 2)
    machine.give(b"5")
    machine.credit(0, 100)
    assert (_runs(machine), machine.state) == ([], State.PAUSED)
    machine.due()
    assert (_runs(machine), machine.state) == ([(1, [b"1", b"2", b"3", b"4", b"5"])], State.SERVING)


def test_a_link_whose_end_nobody_told_of_is_lost_when_it_is_opened_on_the_next() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine)
    machine.give(b"1")
    _runs(machine)
    known = machine.opening()
    assert (known is not None, machine.state) == (True, State.ADRIFT)
    _opened(machine, anew=False)
    assert _runs(machine) == [(1, [b"1"])]
    # Nor does the broker know it: what it was sent is in doubt.
    assert (machine.opening() is not None, machine.forgotten()) == (True, [(1, b"1")])


def test_a_large_body_goes_ahead_of_its_message_and_closes_the_frame_before_it() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    _opened(machine)
    machine.give(b"small")
    machine.give(b"named", upload=(9, b"body"))
    machine.give(b"behind")
    before, ahead, after = machine.frames
    assert (ahead, isinstance(before, Run), isinstance(after, Run)) == (Ahead(9, b"body"), True, True)
    assert [one.messages for one in machine.frames if isinstance(one, Run)] == [[b"small"], [b"named", b"behind"]]
    assert machine.flow.bytes == len(b"small") + len(b"named") + len(b"body") + len(b"behind")


def test_who_waits_for_all_of_it_is_told_once_all_of_it_is_settled() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    assert not machine.mark("nobody")
    machine.give(b"1")
    assert machine.mark("first")
    machine.give(b"2")
    assert machine.mark("second")
    assert machine.passed() == []
    machine.confirmed(1, 1)
    assert machine.passed() == ["first"]
    assert machine.close(errors.ClosedError("over")) == [(2, b"2")]
    assert machine.passed() == ["second"]


def test_a_producer_that_nobody_confirms_keeps_nothing_and_waits_for_its_outbox_alone() -> None:
    machine, outbox = Producing(1, InFlight(100), 1, keeps=False), Outbox()
    machine.opened(Opened(5, b"", "", 0, 0, 0), 7, outbox, anew=True)
    assert [machine.give(b"x" * 100) for _ in range(3)] == [1, 2, 3]
    assert (machine.unconfirmed, outbox.bytes, machine.has_room(100)) == ({}, 300, True)
    outbox.bytes = 1 << 30
    assert not machine.has_room(100)
    machine.lost()
    assert machine.has_room(100), "it is not worth waiting for a link"


def test_what_nobody_confirms_counts_for_no_link_while_it_goes_to_another_broker() -> None:
    machine, outbox = Producing(1, InFlight(100), 1, keeps=False), Outbox()
    machine.opened(Opened(5, b"", "", 0, 0, 0), 7, outbox, anew=True)
    machine.give(b"x" * 100)
    machine.moved()
    machine.give(b"x" * 1000)
    assert outbox.bytes == 100


def test_what_is_told_of_a_confirmation_are_those_that_somebody_waits_for() -> None:
    machine = Producing(1, InFlight(100), 100, keeps=True)
    machine.give(b"1")
    machine.give(b"2", settle="who", times=(3, 9))
    ((sequence, entry),) = machine.confirmed(1, 2)
    assert isinstance(entry, Entry)
    assert (sequence, entry.settle, entry.times, machine.flow.bytes) == (2, "who", (3, 9), 0)


def _on_its_way(told: tuple[int, int, int], data: bytes = b"0123456789") -> int:
    """A body was under way when its link broke; from where it goes on, where the broker says this of what it has."""
    machine = Producing(1, InFlight(1 << 20), 100, keeps=True)
    machine.opened(Opened(7, b"token", "ID:", 0, 0, 0), 1, Outbox(), anew=True)
    machine.give(b"named", upload=(9, data))
    machine.frames.clear()
    machine.lost()
    opening = machine.opening()
    assert opening is not None
    assert opening.uploads == (9,)
    machine.opened(Opened(7, b"token", "ID:", 0, 0, 0, (told,)), 1, Outbox(), anew=False)
    ahead = machine.frames[0]
    assert isinstance(ahead, Ahead)
    return ahead.offset


def test_a_body_goes_on_behind_what_the_broker_has_where_that_is_its_beginning_and_nowhere_else() -> None:
    begun = zlib.crc32(b"01234")
    assert _on_its_way((9, 5, begun)) == 5
    assert _on_its_way((9, 10, zlib.crc32(b"0123456789"))) == 10
    for told in ((9, 5, begun + 1), (9, 4, begun), (8, 5, begun), (9, 11, zlib.crc32(b"0123456789x"))):
        assert _on_its_way(told) == 0


def test_what_the_broker_has_of_a_body_counts_once() -> None:
    machine = Producing(1, InFlight(1 << 20), 100, keeps=True)
    machine.opened(Opened(7, b"token", "ID:", 0, 0, 0), 1, Outbox(), anew=True)
    machine.give(b"named", upload=(9, b"0123"))
    machine.lost()
    machine.opened(Opened(7, b"token", "ID:", 0, 0, 0, ((9, 4, zlib.crc32(b"0123")),)), 1, Outbox(), anew=False)
    machine.frames.clear()
    # Refused for now, with its body.
    assert machine.put_off(1, 1)
    machine.due()
    assert machine.frames[0] == Ahead(9, b"0123", 0)


@pytest.mark.parametrize("resumes", [True, False])
def test_a_body_is_cut_when_there_is_room_for_a_chunk_and_its_chunks_are_frames_of_the_contract(resumes: bool) -> None:
    data = bytes(range(256)) * 40
    chunks = Chunks(Ahead(1 << 47, data, 100), 300, 5, 4_000, resumes=resumes)
    body, done = data[:100], False
    while not done:
        parts: list[bytes | memoryview] = []
        _, done = chunks.take(parts, 0)
        if not done:
            assert chunks.take(parts, 2_000) == (0, False), "there is one already, and no room for the next"
        (frame,) = pb.ClientBatch.FromString(b"".join(parts)).frames
        assert (frame.session, frame.upload.producer, frame.upload.upload_id) == (5, 300, 1 << 47)
        assert (frame.upload.offset, frame.upload.body_bytes) == (len(body), len(data) if resumes else 0)
        body += frame.upload.data
    assert body == data
    assert Chunks(Ahead(1, data, len(data)), 1, 1, 10, resumes=True).take([], 0) == (0, True)
