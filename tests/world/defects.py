"""Mended defects, each behind a number of the issue that mended it, and put back for as long as a run lasts.

What puts one back stands in for what was mended, not beside it: so that a mend which goes is found as a mend that was
never made. `test_defects.py` runs the reduced run of each, with and without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sterna
from sterna._acknowledging import Settled
from sterna._feeds import Feed
from sterna._held import Held
from sterna._homes import Homes
from sterna._lifeline import Lifeline
from sterna._link import Link
from sterna._listening import Listening
from sterna._machines.consuming import ConsumerState, InHand
from sterna._machines.producing import Entry, Producing
from sterna._machines.publishing import Ahead, Run
from sterna._machines.settling import SessionState
from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.draining import Drain
from sterna_broker.cluster.homes import Homes as BrokerHomes
from sterna_broker.cluster.naming import Naming
from sterna_broker.cluster.served import Served
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.server.connect import Call
from sterna_broker.server.internal_stream import InternalStream, Pieces

from tests.world import former
from tests.world.engines import SteppedEngine
from tests.world.run import NUMBERS, Scene, Verdict


def _all_in_hand_is_done(self: InHand, _: Any) -> list[int]:
    return self.clear()


def _nothing_seen(self: Lifeline, link: Link) -> list[Any]:
    for part in self.parts:
        part.gather(link)
    return []


def _may_receive(_: SessionState) -> None:
    return None


def _numbered_on(self: Producing, sequence: int, entry: bytes | Entry, transaction: int = 0) -> None:
    """What is sent again goes into the growing frame, whatever its number: a frame knows the first one only."""
    message, target = (entry.message, entry.destination) if isinstance(entry, Entry) else (entry, b"")
    if isinstance(entry, Entry) and entry.upload is not None:
        self.run = None
        self.frames.append(Ahead(*entry.upload))
    run = self.run
    if run is None or run.destination != target or run.transaction != transaction:
        run = self.run = Run(self, self.id, self.session, sequence, target, transaction)
        self.frames.append(run)
    run.messages.append(message)


_settled = Settled.__init__


def _never_hurried(self: Settled, result: bool | None = None, *, hurry: Any = None) -> None:
    _settled(self, result)


_request = Link.request


async def _without_undo(
    self: Link, session: int, name: str, content: Any, *, at_once: Any = None, undo: Any = None
) -> Any:
    return await _request(self, session, name, content, at_once=at_once)


#: By number: what it is, and what takes the place of what. Points with several parts have two digits more.
DEFECTS: dict[int, tuple[str, list[tuple[Any, str, Any]]]] = {
    1: ("what is sent again is numbered on, over gaps", [(Producing, "_write", _numbered_on)]),
    2: ("a transaction that a break has undone goes on receiving", [(SessionState, "check_receive", _may_receive)]),
    3: ("a Goodbye does not say what is in hand", [(Lifeline, "_seen", _nothing_seen)]),
    4: ("a close acknowledges what another task works on", [(InHand, "finished", _all_in_hand_is_done)]),
    5: (
        "a message waits for credit for all of it",
        [(Producing, "has_room", former.asks_for_all), (Producing, "grant", former.grants_none)],
    ),
    6: ("what a cancelled call had made is not undone", [(Link, "request", _without_undo)]),
    7: ("a listener's end is told to nobody", [(Listening, "_ended", former.ends_silently)]),
    8: ("a lazy acknowledgement that is waited for does not leave", [(Settled, "__init__", _never_hurried)]),
    9: ("what follows a move and is cancelled tells nobody", [(Homes, "spawn", former.spawns)]),
    10: ("a look shows pieces of large bodies as messages", [(Pieces, "whole", former.pieces)]),
    13: ("a reply to an asker that has gone is an error", [(sterna.Connection, "reply", former.replies)]),
    15: ("a closed connection keeps its socket", [(Link, "_cut", former.keeps_channel)]),
    16: ("the engine's close stands behind an await", [(Call, "serve", former.serves)]),
    17: ("an oversize call ends the stream of all", [(InternalStream, "send", former.sends_whatever)]),
    19: (
        "a durable subscription is known by its object's name alone",
        [(ObjectSet, "_by_subject", property(former.by_subject))],
    ),
    20: (
        "the broker's time comes once",
        [(Feed, "on_deliver", former.delivers), (ConsumerState, "_note_deadlines", former.notes_ends)],
    ),
    2201: ("an opening does not look at the home again", [(ClusterDesk, "destination", former.answers_at_once)]),
    2202: (
        "what is served is not compared with the homes",
        [(Served, "compare", former.compares_nothing), (Served, "compare_all", former.compares_nothing)],
    ),
    2204: ("what is stray is not counted", [(Drain, "_is_stray", former.is_never_stray)]),
    2205: ("a home is ours where etcd did not say whose it is", [(BrokerHomes, "_leave", former.gives_up)]),
    23: ("a copied data folder has no rival", [(Naming, "rival", former.has_no_rival)]),
    24: (
        "what a bridge leads to can be deleted",
        [
            (SteppedEngine, "delete", former.deletes),
            (ObjectSet, "targets", property(former.has_no_targets)),
            (LiveConfiguration, "restore", former.restores_nothing),
        ],
    ),
    25: ("what is refused for now has failed", [(Held, "may_hold", former.holds_nothing)]),
}

#: They show in clusters alone: no other seed is looked at for them.
OF_CLUSTERS = (9, 23, 25, 2201, 2202, 2204, 2205)

FILE = Path(__file__).with_name("defects.json")


def runs() -> dict[int, Scene]:
    """A reduced run that shows each, by number.

    `python -m tests.world --hunt` makes them anew, as after a change of the generator.
    """
    kept: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return {int(number): replace(Scene.of(one.pop("seed")), **one) for number, one in kept.items()}


def keep(number: int, scene: Scene) -> None:
    """Writes a reduced run down."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[str(number)] = {name: getattr(scene, name) for name in ("seed", *NUMBERS)}
    FILE.write_text(json.dumps(dict(sorted(kept.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


@contextmanager
def put_back(number: int) -> Iterator[None]:
    """The defect is there, as long as this lasts."""
    before = [(where, name, vars(where)[name]) for where, name, _ in DEFECTS[number][1]]
    try:
        for where, name, former in DEFECTS[number][1]:
            setattr(where, name, former)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def hunt(number: int, first: int, seeds: int, play: Callable[[Scene], Verdict]) -> Verdict | None:
    """The first seed that finds it, and that finds nothing without it; None: none of so many does."""
    for seed in range(first, first + seeds):
        if number in OF_CLUSTERS and Scene.of(seed).brokers == 1:
            continue
        with put_back(number):
            verdict = play(Scene.of(seed))
        if verdict.problems and not play(Scene.of(seed)).problems:
            return verdict
    return None
