"""The configured objects of the cluster, judged: the set that holds, and what is refused and why.

Each object is judged by itself and beside the others, by the same checks as a folder's. Unlike there, a mistake takes
out that one object and not the whole: others apply their objects here, too. Where two do not go together, the one that
was there first stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord
from sterna_resources.broker import Broker
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.reading import Manifest, from_document
from sterna_resources.resource import Resource

from sterna_broker.cluster.claims import claim_of
from sterna_broker.cluster.view import Stored
from sterna_broker.configuration import checks, lookups
from sterna_broker.configuration.objects import Entry, ObjectSet


@dataclass(frozen=True)
class Refusal:
    """Why an object is not applied. `reason` is one word, for conditions."""

    reason: str
    message: str


@dataclass(frozen=True)
class Examined:
    """`objects`: what holds. `refused`: what does not. `judged`: what both were made from, as it was then.

    `partly`: what holds, but is not found by some of its names, which lead to others.
    """

    objects: ObjectSet = field(default_factory=ObjectSet)
    refused: dict[Claim, Refusal] = field(default_factory=dict)
    partly: dict[Claim, Refusal] = field(default_factory=dict)
    judged: dict[Claim, Stored] = field(default_factory=dict)


class Examiner:
    """Remembers what it has read, so that a change costs as much as it changes."""

    def __init__(self, selector_check: checks.SelectorCheck) -> None:
        self._selector_check = selector_check
        self._read: dict[Claim, tuple[int, Entry | Refusal]] = {}

    def examine(self, configs: dict[Claim, Stored]) -> Examined:
        """Judges all. May take long: call it in a thread, with a copy."""
        entries: dict[Claim, Entry] = {}
        refused: dict[Claim, Refusal] = {}
        for claim in self._read.keys() - configs.keys():
            del self._read[claim]
        for claim, stored in sorted(configs.items(), key=lambda item: (item[1].created, item[0].name)):
            known = self._read.get(claim)
            if known is None or known[0] != stored.revision:
                known = self._read[claim] = (stored.revision, read(claim, stored.record))
            if isinstance(known[1], Refusal):
                refused[claim] = known[1]
            else:
                entries[claim] = known[1]
        while problems := list(checks.severe(objects := ObjectSet.of(entries.values()), self._selector_check)):
            before = len(entries)
            for claim, problem in _concerned(problems, entries):
                if entries.pop(claim, None) is not None:
                    refused[claim] = Refusal("Invalid", str(problem))
            if len(entries) == before:
                # A problem that stands in no object of ours would be asked about for ever.
                break
        kept, taken = lookups.without_taken(objects)
        partly = {
            Claim(*key): Refusal("NameTaken", f"{_joined(wrong)}; all else holds") for key, wrong in taken.items()
        }
        return Examined(kept, refused, partly, configs)


def _joined(problems: list[Problem]) -> str:
    return "; ".join(str(problem) for problem in problems)


def read(claim: Claim, record: ConfigRecord) -> Entry | Refusal:
    """One object by itself."""
    source = place_of(claim)
    try:
        resource = from_document(record.manifest, source)
    except ManifestError as error:
        return Refusal("Invalid", "; ".join(str(problem) for problem in error.problems))
    if isinstance(resource, Broker):
        return Refusal("NotForClusters", "a Broker manifest says how one broker starts; in a cluster its flags do")
    found = claim_of(resource)
    if found != claim:
        return Refusal("Invalid", f"the manifest describes {found.kind} '{found.name}' and stands under {claim.name}")
    return entry_of(resource, record.owner.by, source)


def entry_of(resource: Resource, owner: str, source: str) -> Entry:
    """An object of the cluster: known by its claim, since object names repeat in namespaces."""
    return Entry(Manifest(resource, Place(source, 1)), owner, claim_of(resource).name)


def place_of(claim: Claim) -> str:
    """How messages name an object in etcd."""
    return f"{claim.kind} {claim.name}"


def _concerned(problems: Iterable[Problem], entries: dict[Claim, Entry]) -> Iterable[tuple[Claim, Problem]]:
    by_source = {entry.place.source: claim for claim, entry in entries.items()}
    for problem in problems:
        claim = by_source.get(problem.place.source)
        if claim is not None:
            yield claim, problem
