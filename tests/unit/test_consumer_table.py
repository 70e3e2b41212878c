"""Where a consumer stands with its link: each step is the one of the table, and only its end is for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sterna._machines.consuming import TRANSITIONS, ConsumerState, Event, Link
from sterna._machines.settling import SessionState
from sterna._machines.window import Window
from sterna.modes import AcknowledgeMode

_CALLS: dict[Event, Callable[[ConsumerState], object]] = {
    Event.BEGIN: ConsumerState.begin,
    Event.OPENED: lambda machine: machine.opened(7, 1),
    Event.INTERRUPTED: ConsumerState.interrupted,
    Event.REFUSED: ConsumerState.refused,
    Event.ENDED: ConsumerState.closed,
}
_WAYS: dict[Link, tuple[Event, ...]] = {
    Link.AWAY: (),
    Link.OPENING: (Event.BEGIN,),
    Link.OPEN: (Event.BEGIN, Event.OPENED),
    Link.CLOSED: (Event.ENDED,),
}


def _machine(link: Link) -> ConsumerState:
    session = SessionState(AcknowledgeMode.AUTO)
    session.opened(1)
    machine = ConsumerState(session, Window(10, 0), browses=False, now_ms=lambda: 0, has_ended_well=lambda _: False)
    for event in _WAYS[link]:
        _CALLS[event](machine)
    assert machine.link is link
    return machine


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("link", Link, ids=lambda link: link.name)
def test_the_table_says_each_step_that_is_taken(link: Link, event: Event) -> None:
    machine = _machine(link)
    _CALLS[event](machine)
    assert machine.link is TRANSITIONS[link][event]
    # Its session counts it as long as something may come for it.
    assert (machine in machine.session.consumers) is (
        machine.link in (Link.OPENING, Link.OPEN) or _is_kept(link, event)
    )


def _is_kept(link: Link, event: Event) -> bool:
    """A break takes nothing out of a session that was in it: it is opened anew with the others."""
    return event is Event.INTERRUPTED and link in (Link.OPENING, Link.OPEN)


@pytest.mark.parametrize("link", Link, ids=lambda link: link.name)
def test_that_there_is_nothing_more_counts_where_it_is_open_or_about_to_be(link: Link) -> None:
    """Behind a Goodbye a browser that was not shown all that had come would end as if it had seen it."""
    machine = _machine(link)
    machine.drained(10)
    assert machine.is_drained is (link in (Link.OPENING, Link.OPEN))


def test_all_states_can_be_reached_and_only_one_is_never_left() -> None:
    reached, before = {Link.AWAY}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {after for link in reached for after in TRANSITIONS[link].values()}
    assert reached == set(Link)
    assert [one for one in Link if set(TRANSITIONS[one].values()) == {one}] == [Link.CLOSED]
    assert set(TRANSITIONS) == set(Link)
    assert all(set(events) == set(Event) for events in TRANSITIONS.values())
