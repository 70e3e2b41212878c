"""What must hold after a run, by what applications were told and by what was left when all was drained."""

from __future__ import annotations

from collections import defaultdict

from tests.world.facts import Facts, Handing, Sending, Taken


def problems(
    facts: Facts, drained: list[Handing], *, restarted: bool, given_up: bool = False, copied: bool = False
) -> list[str]:
    """Everything that was promised and does not hold. `restarted`: whether a broker was, whose memory was lost so.

    `given_up`: whether homes were given away by force. What they held stays where it was, and what was under way then
    may be in both places; nothing is lost, and nothing that was acknowledged or refused is there again. `copied`:
    whether a data folder was: what its brokers did until one of them stopped has happened to one of them alone.
    """
    if copied:
        return [*facts.hung, *facts.odd]
    found = [
        *facts.hung,
        *facts.odd,
        *_lost(facts, drained, restarted),
        *_refused_and_there(facts, drained),
        *_come_again(facts, drained, restarted, given_up=given_up),
    ]
    if given_up:
        return found
    return [
        *found,
        *_overlooked(facts, drained),
        *_unflagged(facts, drained, restarted),
        *_doubled(facts, drained),
        *_torn(facts, drained),
        *_out_of_order(facts, drained),
    ]


def _taken(handing: Handing) -> Taken:
    transaction = handing.transaction
    if transaction is None:
        return handing.taken
    return {"committed": "yes", "in doubt": "maybe"}.get(transaction.ending, "no")  # type: ignore[return-value]


def _is_promised(sending: Sending, restarted: bool) -> bool:
    if sending.transaction is not None:
        return sending.transaction.ending == "committed"
    return sending.outcome == "confirmed" and (sending.persistent or not restarted)


def _lost(facts: Facts, drained: list[Handing], restarted: bool) -> list[str]:
    left = {handing.key for handing in drained}
    gone = {handing.key for handing in facts.handings if _taken(handing) != "no"}
    return [
        f"lost: {one.key} in {one.queue}, confirmed{_handings(facts, one.key)}"
        for one in facts.sendings.values()
        if _is_promised(one, restarted)
        and one.key not in left | gone
        and not facts.may_be_emptied(one)
        and not facts.may_have_expired(one)
    ]


def _overlooked(facts: Facts, drained: list[Handing]) -> list[str]:
    """What nobody ever took was there all the time, and a browser that says that this was all has shown it."""
    left = {one.key for one in drained} - {one.key for one in facts.handings}
    return [
        f"a browser has shown {len(look.shown)} messages of {look.queue} as all, and not {', '.join(sorted(missing))}"
        for look in facts.looks
        if (missing := (look.held & left) - look.shown)
    ]


def _handings(facts: Facts, key: str) -> str:
    told = [
        f"; at {one.at_s:.3f} to {one.consumer} ({_taken(one)}{'' if one.transaction is None else ', transacted'})"
        for one in facts.handings
        if one.key == key
    ]
    return "".join(told)


def _refused_and_there(facts: Facts, drained: list[Handing]) -> list[str]:
    found = []
    for handing in (*facts.handings, *drained):
        sending = facts.sendings.get(handing.key)
        if sending is None:
            continue
        rolled_back = sending.transaction is not None and sending.transaction.ending == "rolled back"
        if rolled_back or (sending.transaction is None and sending.outcome == "refused"):
            found.append(f"it was {'rolled back' if rolled_back else 'refused'}, and is there: {handing.key}")
    return found


def _may_be_forgotten(facts: Facts, key: str, restarted: bool) -> bool:
    """Whether it, its delivery and its end may have gone with memory: who had no answer sends it again."""
    sending = facts.sendings.get(key)
    return restarted and sending is not None and not sending.persistent


def _come_again(facts: Facts, drained: list[Handing], restarted: bool, *, given_up: bool) -> list[str]:
    def which(one: Handing) -> tuple[str, str]:
        """A second copy, under another id, is another message where it may be in both places."""
        return one.key, one.message_id if given_up else ""

    done: dict[tuple[str, str], float] = {}
    for one in facts.handings:
        if one.taken == "yes":
            done[which(one)] = min(one.taken_s, done.get(which(one), one.taken_s))
    again = [
        one
        for one in (*facts.handings, *drained)
        if which(one) in done
        and one.at_s > done[which(one)]
        and not _may_be_forgotten(facts, one.key, restarted)
        # What waited in a client that its broker has given up: it went to another, who was done with it first. This
        # one may only believe that it has taken it, too.
        and not (one.is_belated and one.taken != "yes")
    ]
    return [
        f"acknowledged at {done[which(one)]:.3f} and there again at {one.at_s:.3f}: "
        f"{one.key}{_handings(facts, one.key)}"
        for one in again
    ]


def _unflagged(facts: Facts, drained: list[Handing], restarted: bool) -> list[str]:
    seen: dict[tuple[str, str], list[Handing]] = defaultdict(list)
    found = []
    for one in (*facts.handings, *drained):
        before = seen[one.key, one.queue]
        # What waited in a client that the broker has given up went to another with its flag, who may have been quicker.
        was_first = one.is_belated and not one.redelivered and all(other.redelivered for other in before)
        is_plain = bool(before) and not one.redelivered and not was_first
        is_plain = is_plain and not facts.may_be_new(one.queue, before[0].at_s, one.at_s)
        if is_plain and not _may_be_forgotten(facts, one.key, restarted):
            found.append(
                f"twice without the flag: {one.key} at {one.at_s:.3f} to {one.consumer}{_handings(facts, one.key)}"
            )
        before.append(one)
    return found


def _doubled(facts: Facts, drained: list[Handing]) -> list[str]:
    ids: dict[str, set[str]] = defaultdict(set)
    for one in (*facts.handings, *drained):
        ids[one.key].add(one.message_id)
    return [f"stored twice: {key} as {', '.join(sorted(several))}" for key, several in ids.items() if len(several) > 1]


def _torn(facts: Facts, drained: list[Handing]) -> list[str]:
    """A transaction in doubt is one of two things, whole."""
    left = {one.key for one in drained}
    seen = left | {one.key for one in facts.handings}
    found = []
    for transaction in facts.transactions:
        there = [one for one in transaction.sent if one.key in seen]
        if transaction.ending != "in doubt" or not transaction.sent:
            continue
        is_whole = len(there) in (0, len(transaction.sent))
        # Somebody else may have taken away what was sent, and whether it was committed cannot be told by that.
        is_known = not any(facts.may_be_emptied(one) for one in transaction.sent)
        if not is_whole and is_known:
            found.append(f"half a transaction of {transaction.program}: {[one.key for one in there]} and no more")
        back = [one.key for one in transaction.handed if one.key in left]
        if there and back:
            found.append(f"a transaction of {transaction.program} was committed, and what it took is there: {back}")
        if not there and is_known:
            lost = [one for one in transaction.handed if not _again(facts, left, one)]
            found += [
                f"a transaction of {transaction.program} was not committed, and {one.key} is gone" for one in lost
            ]
    return found


def _again(facts: Facts, left: set[str], handing: Handing) -> bool:
    """Whether what a transaction took, which took no effect, was to be had afterwards."""
    sending = facts.sendings.get(handing.key)
    promised = sending is not None and sending.persistent and _is_promised(sending, restarted=True)
    # What came late went to another before, who may be done with it.
    others = [one for one in facts.handings if one.key == handing.key and one is not handing]
    later = any(one.at_s > handing.at_s or handing.is_belated for one in others)
    emptied = sending is not None and facts.may_be_emptied(sending)
    emptied = emptied or (sending is not None and facts.may_have_expired(sending))
    return not promised or emptied or later or handing.key in left


def _out_of_order(facts: Facts, drained: list[Handing]) -> list[str]:
    last: dict[tuple[str, str], int] = {}
    found = []
    for one in drained:
        sending = facts.sendings.get(one.key)
        if sending is None or sending.transaction is not None:
            continue
        place = (sending.lane, one.queue)
        if sending.number < last.get(place, 0):
            found.append(f"out of order: {one.key} in {one.queue} after number {last[place]} of the same producer")
        last[place] = max(last.get(place, 0), sending.number)
    return found
