"""What a kind of finding means to whoever runs brokers, and what to do about it: the report shows it beside them.

An audit says it of its own kinds (`Audit.meanings`); here is what holds of the audits of chains and of conservation,
and of every kind of which nothing is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sterna_audit.audits.findings import Verdict


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a kind of finding means.

    Attributes:
        means: what is the case where such a finding stands, a sentence or two.
        todo: what to do about it; empty: nothing.
    """

    means: str
    todo: str = ""


_RESTORE = (
    "Compare with another copy of the snapshots, and find out who could write there. Judge no audit of these cuts"
    " before."
)
_RECORDS = (
    "Keep the broker's data folder and its log as they are, take the message's id to whoever sent it, and compare with"
    " the clients' ledgers. It is a fault of the broker or of its disk: report it with the evidence shown here."
)

_CHAIN: Mapping[str, Meaning] = {
    "verified": Meaning("Files, links and rows are as the exporter wrote them."),
    "gap": Meaning(
        "The broker could not keep all events until they were exported: what happened in that range is known by"
        " counts alone.",
        "Export more often, or give the log more room for what waits for audits.",
    ),
    "unsigned": Meaning(
        "Nobody vouches for the snapshots: whoever can write to their folder can make them right.",
        "Give the exporter a key (see docs/audits/snapshots.md), and the audits its public part.",
    ),
    "no-cuts": Meaning("There is nothing of this broker in the range.", "Look whether its exporter runs."),
    "missing-file": Meaning("A file that the manifest names is gone.", _RESTORE),
    "altered-file": Meaning("A file is not the one that was written.", _RESTORE),
    "unreadable-file": Meaning("A file cannot be read as Parquet.", _RESTORE),
    "wrong-rows": Meaning("A table's rows are not those that were written.", _RESTORE),
    "missing-cut": Meaning("A cut between two others is not there.", _RESTORE),
    "broken-chain": Meaning(
        "A cut does not name the one before as it is now: one of them was changed or replaced.", _RESTORE
    ),
    "wrong-range": Meaning("Events of two cuts overlap, or leave something out that no gap states.", _RESTORE),
    "wrong-signature": Meaning("The manifest was changed after it was signed.", _RESTORE),
    "unknown-key": Meaning(
        "Somebody signed whose key was not given to the audits.", "Add the key by --key if it is the exporter's."
    ),
    "broken-manifest": Meaning("The manifest says what it must not.", _RESTORE),
}

_CONSERVATION: Mapping[str, Meaning] = {
    "balanced": Meaning("What was there, what came, what ended and what is left agree, message by message."),
    "open-transactions": Meaning("Clients had not decided them at the cut. The next cut tells what became of them."),
    "no-interval": Meaning(
        "A pair of cuts could not be compared.", "See the audit `chain` for the cut that cannot be read."
    ),
    "lost": Meaning("A message was there, and it is gone although nothing ended it.", _RECORDS),
    "record-missing": Meaning("A message waits, and its record is not in the log: no consumer can get it.", _RECORDS),
    "record-unknown": Meaning("A message is there that nobody stored.", _RECORDS),
    "record-altered": Meaning("A message is not what it was when it was stored.", _RECORDS),
    "record-doubled": Meaning("One record of a message is there twice.", _RECORDS),
    "copies-altered": Meaning("The copies of a message are not those that it had when it was stored.", _RECORDS),
    "sequence-not-given": Meaning("A number is in use that the broker will give again.", _RECORDS),
    "sequences-again": Meaning("Numbers were given that the broker will give again.", _RECORDS),
    "watermark-behind": Meaning(
        "The broker forgot what it may have delivered: after its next start that comes again, and not flagged.",
        _RECORDS,
    ),
    "broken-run": Meaning("Records of ends make no sense.", _RECORDS),
}

#: Of audits that bring none of their own.
_OF_AUDITS: Mapping[str, Mapping[str, Meaning]] = {"chain": _CHAIN, "conservation": _CONSERVATION}

_OF_VERDICTS: "Mapping[Verdict, Meaning]" = {
    "violated": Meaning("Two witnesses contradict one another, or a rule was broken.", _RECORDS),
    "not provable": Meaning("What it takes to prove it is not in the snapshots: it may be right or wrong."),
    "in flight": Meaning("It was not decided yet at the cut. The next cut tells."),
    "ok": Meaning("It was looked at, and is as it should be."),
}


def meaning(audit: str, own: Mapping[str, Meaning], what: str, verdict: "Verdict") -> Meaning:
    """What a kind of finding means.

    Args:
        audit: the audit's name.
        own: what it says of its kinds.
        what: the kind.
        verdict: of the findings; it tells where nothing is said of the kind.
    """
    found = own.get(what) or _OF_AUDITS.get(audit, {}).get(what)
    return found or _OF_VERDICTS[verdict]
