"""The configuration of a running broker, and the one way to change it.

A change goes: read and check; compare with what is there; keep it on disk (in a thread); hand the whole to the
engine; take the new set. When the engine refuses, or the disk, what was kept is undone and the old set stays. From the
keeping on a change happens whole, whether or not its caller is still there. Changes wait for one another, so each sees
the outcome of the one before. While a change is being kept, requests are answered from the old set.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from sterna_resources.bridge import Bridge
from sterna_resources.broker import Broker
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.problems import ManifestError, Problem
from sterna_resources.queue import Queue
from sterna_resources.reading import Examined, Manifest, examine_text
from sterna_resources.resource import Resource
from sterna_resources.store import SYSTEM_STORES, Store
from sterna_resources.topic import Topic

from sterna_broker.configuration import checks
from sterna_broker.configuration.applied import OWNER, AppliedFolder, Record, digest, merge
from sterna_broker.configuration.handover import Configure, Handover, Prepared
from sterna_broker.configuration.objects import NO_PERMISSIONS, Entry, Key, ObjectSet
from sterna_broker.configuration.restarts import Restarts
from sterna_broker.configuration.source import Source
from sterna_broker.refusals import RefusedError
from sterna_broker.whole import to_its_end

_log = structlog.get_logger(part="configuration")

# The kinds that the engine refuses by name, in its words.
ENGINE_WORDS = {"Queue": "queue", "Topic": "topic", "DurableSubscription": "durable"}
# Kinds other than destinations that have names of their own, in words.
_SPOKEN = {"ConnectionFactory": "connection factory", "DurableSubscription": "subscription", "Store": "store"}

_OWED_TOLD_MAX = 5

#: How long a start and a change wait for the engine's log to have room for what is described.
ROOM_S = 2.0
_ROOM_TRIES = 20

NOT_APPLIED = "not applied: another document of the same call is refused"


@dataclass
class Outcome:
    """What became of one document of an apply: "unchanged", "created", "configured" or "refused"."""

    kind: str
    name: str
    change: str
    changes: list[str] = field(default_factory=list)
    problems: Sequence[Problem] = ()
    refusal: RefusedError | None = None
    engine_name: str | None = None
    warnings: list[str] = field(default_factory=list)


def refuse(outcomes: list[Outcome], refused: Mapping[int, RefusedError]) -> None:
    """Marks what may not be done, by its place; then nothing is."""
    if not refused:
        return
    for index, outcome in enumerate(outcomes):
        outcome.warnings = []
        if (why := refused.get(index)) is not None:
            outcome.change, outcome.changes, outcome.refusal = "refused", [], why
        elif outcome.change not in ("unchanged", "refused"):
            outcome.change, outcome.changes = "unchanged", [NOT_APPLIED]


def _existing(outcomes: list[Outcome]) -> dict[int, RefusedError]:
    """For who only creates, by its place: what is there already and is another."""
    return {
        index: RefusedError(
            "ALREADY_EXISTS",
            (one.engine_name or one.name)[:256],
            f"The {one.kind.lower()} '{one.engine_name or one.name}' exists, with other properties: "
            f"{'; '.join(one.changes)}.",
            "Apply a manifest to change it.",
        )
        for index, one in enumerate(outcomes)
        if one.change == "configured"
    }


class LiveConfiguration:
    """See the module. `objects` is what holds now."""

    def __init__(self, source: Source, applied: AppliedFolder, selector_check: checks.SelectorCheck) -> None:
        self.objects = ObjectSet()
        self._source = source
        self._applied = applied
        self._selector_check = selector_check
        self._below = ObjectSet()
        self._handover: Handover | None = None
        #: Called when the engine's log had no room for something.
        self.on_lack: Callable[[], None] = lambda: None
        #: What the start has read, by which is known what waits for the next one. None: no Broker manifest counts here.
        self.restarts: Restarts | None = None
        self._due: list[str] = []
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._told: set[tuple[str, str, str]] = set()
        self._changing = asyncio.Lock()
        # What was refused, and stands on disk still, with what stood there before it.
        self._owed: tuple[list[Record], dict[Key, Record]] | None = None
        # Why what holds is not what stands there.
        self._unread = ""

    async def load(self) -> ObjectSet:
        """Reads source and kept changes for the first time; nothing reaches an engine yet.

        Raises:
            ManifestError: with all that is wrong.
        """
        self._below, self.objects, _ = await self._read()
        return self.objects

    def connect(self, configure: Configure, reconfigure: Configure | None = None) -> None:
        """From now on changes reach the engine; what holds is handed to it at once.

        `configure` takes a whole configuration, `reconfigure` only what is different; without it all changes are whole.
        """
        self._handover = Handover(configure, reconfigure)
        self._hand_over(self._handover.prepare(self._local_objects()))

    @property
    def lacks_room(self) -> bool:
        """The engine's log had no room for something of what it was last given; mostly it is being prepared."""
        return not self._has_room.is_set()

    async def has_room(self, within_s: float = ROOM_S) -> None:
        """Waits, for a while, until the engine has taken what its log had no room for.

        Until then what is described is missing there, and what is sent to the source of a bridge to it is refused.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._has_room.wait()

    @property
    def dangling_bridges(self) -> dict[str, list[str]]:
        """Bridges of this broker with ends that nobody has described, and what is wrong with each."""
        return self._local_objects().dangling_bridges

    @property
    def warnings(self) -> list[str]:
        """What people should know of the configuration, although it holds."""
        owed = self._owed[0] if self._owed is not None else []
        told = [
            f"a refused change of {kind} '{name}' cannot be taken back on disk: it would hold from the next start on; "
            "see the broker's log, and reload the configuration when the disk can be written"
            for kind, name in _keys(owed)
        ]
        if self._unread:
            told.insert(0, f"the configuration was not read again, and would not be at the next start: {self._unread}")
        due = self.restarts.warning(self.objects.broker) if self.restarts is not None else ""
        return [*told[:_OWED_TOLD_MAX], *([due] if due else []), *self._local_objects().warnings]

    @property
    def restart_due(self) -> list[str]:
        """Settings of the Broker manifest that hold from the next start on, each as `field: old -> new`."""
        return self.restarts.due(self.objects.broker) if self.restarts is not None else []

    def _tell_due(self) -> None:
        """Logs what waits for the next start, when it is something else than before."""
        due, self._due = self._due, self.restart_due
        if self._due and self._due != due:
            _log.warning("restart_due", settings=self._due)

    async def settled(self) -> None:
        """Waits, for a while, until the engine has what is known of the configuration by now."""

    async def follows(self, kind: str, name: str, is_there: Callable[[], bool]) -> None:
        """Waits, for a while, until a destination that bridges lead to has followed these to where it lives now."""

    async def restore(self) -> None:
        """Gives the engine again what it is to have, after somebody deleted something there."""
        async with self._changing:
            self._hand_over(await self._prepare(self._local_objects()))

    def _local_objects(self) -> ObjectSet:
        """What the engine of this broker is to have."""
        return self.objects

    def discard(self, word: str, name: str, client_id: str = "") -> None:
        """The engine has deleted a "queue", "topic" or "durable" on somebody's word, not by a change from here."""
        if self._handover is not None:
            self._handover.discard(word, name, client_id)

    async def reload(self) -> None:
        """Reads everything again and takes what changed.

        Raises:
            ManifestError: with all that is wrong; then nothing changes.
        """
        async with self._changing:
            await asyncio.to_thread(self._settle)
            try:
                below, objects, retired = await self._read()
            except ManifestError as error:
                self._unread = _first_of(error)
                raise
            self._unread = ""
            self._hand_over(await self._prepare(objects))
            self._below, self.objects = below, objects
            # The next change must not keep what this one is about to remove.
            await to_its_end(asyncio.to_thread(self._applied.remove, [record.key for record in retired]))
            _log.info("configuration_reloaded", objects=len(objects.entries))
            self._tell_due()

    async def apply(
        self, manifests: str, source: str, *, dry_run: bool = False, create_only: bool = False
    ) -> list[Outcome]:
        """As `apply_all`, of one text."""
        return await self.apply_all([(source, manifests)], dry_run=dry_run, create_only=create_only)

    async def apply_all(
        self, texts: Sequence[tuple[str, str]], *, dry_run: bool = False, create_only: bool = False
    ) -> list[Outcome]:
        """Makes the described objects so; all of them, or none when one is refused.

        Of each text there is first what errors call it. `create_only`: an object that is there already is refused,
        unless it is as described.
        """
        async with self._changing:
            examined = await asyncio.to_thread(examine_texts, texts)
            entries = [self._entry(one.manifest) for one in examined if one.manifest is not None]
            objects = self.objects.replaced(entries)
            problems = await asyncio.to_thread(self._apply_problems, objects, entries)
            outcomes = self._outcomes(examined, problems, create_only=create_only)
            if dry_run or any(outcome.change == "refused" for outcome in outcomes):
                return outcomes
            changed = [entry for entry in entries if self._change_of(entry)[0] != "unchanged"]
            if changed:
                records = [Record(entry.key, entry.manifest, self._base(entry.key)) for entry in changed]
                _note_refusals(outcomes, await self._change(objects, records, OWNER))
            return outcomes

    async def prepare_delete(self, entry: Entry) -> int:
        """Before anything that an object describes is deleted: whether the object may be; the revision for `delete`.

        Raises:
            RefusedError: something else needs it.
        """
        self.check_deletable(entry)
        return 0

    async def delete(self, entry: Entry, revision: int = 0) -> None:
        """Takes an object out of the configuration; what it holds is the caller's business.

        `revision` is what `prepare_delete` has said: it is the object as it was then that goes.

        Raises:
            RefusedError: something else needs it.
        """
        async with self._changing:
            self.check_deletable(entry)
            record = Record(entry.key, None, self._base(entry.key))
            await self._change(self.objects.without(entry.key), [record], OWNER)

    def check_deletable(self, entry: Entry) -> None:
        """Refuses to delete what others need: the source of a bridge (EMS-DEST-A53), whose targets may go, and a store.

        Raises:
            RefusedError: naming who needs it.
        """
        resource = entry.resource
        if isinstance(resource, Store):
            self._check_store_unused(resource.subject)
        if not isinstance(resource, DestinationResource):
            return
        identity = (resource.kind.lower(), resource.subject)
        for bridge in self.objects.bridges():
            if bridge.spec.source.destination == identity:
                message = f"the {identity[0]} '{resource.subject}' is the source of the bridge '{bridge.metadata.name}'"
                raise RefusedError("IN_USE", resource.subject, message, "Delete the bridge first.")

    def _check_store_unused(self, store: str) -> None:
        for destination in self.objects.destinations():
            if destination.spec.store == store and store not in SYSTEM_STORES:
                message = f"the {destination.label} is in the store '{store}'"
                raise RefusedError("IN_USE", store, message, "Give the destination another store first.")

    async def _read(self) -> tuple[ObjectSet, ObjectSet, list[Record]]:
        """The source alone, everything merged, and the kept changes that the source has overtaken."""
        problems: list[Problem] = []
        manifests = []
        records: list[Record] = []
        try:
            manifests = await self._source.load()
        except ManifestError as error:
            problems += error.problems
        try:
            records = await asyncio.to_thread(self._applied.load)
        except ManifestError as error:
            problems += error.problems
        entries = [Entry(manifest, self._source.owner) for manifest in manifests]
        # Objects that stand twice have to be told apart before a set, which has each key once, hides it.
        problems += checks.duplicates(entries)
        if problems:
            raise ManifestError(problems)
        merged = merge(entries, records)
        objects = ObjectSet.of(merged.entries)
        if problems := await asyncio.to_thread(lambda: list(checks.problems(objects, self._selector_check))):
            raise ManifestError(problems)
        for problem in checks.dangling(objects, objects.entries.values()):
            _log.warning("configuration_dangling", problem=str(problem))
        for record in merged.retired:
            _log.info("applied_change_overtaken_by_folder", kind=record.key[0], name=record.key[1])
        return ObjectSet.of(entries), objects, merged.retired

    async def _change(self, objects: ObjectSet, records: list[Record], actor: str) -> list[dict[str, Any]]:
        """Keeps the records, hands the configuration to the engine, takes it.

        What the engine refuses of the objects concerned undoes the whole change, and is returned. Whoever goes away
        before the keeping has changed nothing, later all of it.
        """
        prepared = await self._prepare(objects)
        await asyncio.to_thread(self._settle)
        former = {record.key: record for record in await asyncio.to_thread(self._applied.load)}
        return await to_its_end(self._keep(objects, records, actor, prepared, former))

    async def _keep(
        self,
        objects: ObjectSet,
        records: list[Record],
        actor: str,
        prepared: Prepared | None,
        former: dict[Key, Record],
    ) -> list[dict[str, Any]]:
        try:
            await asyncio.to_thread(self._applied.keep, records, former)
        except BaseException:
            # A rename may have happened all the same, and would hold from the next start on.
            await asyncio.to_thread(self._undo, records, former)
            raise
        try:
            refused = await self._refused(objects, _keys(records), prepared)
        except BaseException:
            await asyncio.to_thread(self._undo, records, former)
            raise
        if refused:
            await asyncio.to_thread(self._undo, records, former)
            self._hand_over(await self._prepare(self.objects))
            return refused
        self.objects = objects
        await asyncio.to_thread(self._applied.confirm)
        _log.info("configuration_changed", actor=actor, objects=[f"{kind} {name}" for kind, name in _keys(records)])
        self._tell_due()
        return []

    async def _refused(self, objects: ObjectSet, keys: list[Key], prepared: Prepared | None) -> list[dict[str, Any]]:
        """Hands over; what the engine refuses of the objects with these keys, after trying again while room is made."""
        concerned = _names_in_the_engine(objects, keys)

        def hand_over() -> list[dict[str, Any]]:
            rows = self._hand_over(prepared)
            return [row | own for row in rows for own in concerned.get((row["kind"], row["name"]), ())]

        refused = hand_over()
        for _ in range(_ROOM_TRIES):
            if not refused or any(row["error"]["code"] != "STORE_FULL" for row in refused):
                break
            await asyncio.sleep(ROOM_S / _ROOM_TRIES)
            prepared = await self._prepare(objects)
            refused = hand_over()
        return refused

    def _undo(self, records: list[Record], former: dict[Key, Record]) -> None:
        """As a whole. What cannot be undone now is undone before anything else is changed, and told until then."""
        self._owed = (records, former)
        try:
            self._settle()
        except OSError as error:
            for kind, name in _keys(records):
                _log.error("change_not_undone", kind=kind, name=name, error=str(error), applies="at the next start")

    def _settle(self) -> None:
        """Undoes what could not be undone when it was refused.

        Raises:
            OSError: it cannot be undone now either.
        """
        if self._owed is not None:
            records, former = self._owed
            self._applied.undo(former, _keys(records))
            self._owed = None

    async def _prepare(self, objects: ObjectSet) -> Prepared | None:
        """What the engine has to be given for these objects; compared in a thread, since there may be thousands."""
        if self._handover is None:
            return None
        return await asyncio.to_thread(self._handover.prepare, objects)

    def _hand_over(self, prepared: Prepared | None) -> list[dict[str, Any]]:
        """Gives the engine what was prepared; what it refuses of it."""
        if self._handover is None or prepared is None:
            return []
        refused: list[dict[str, Any]] = self._handover.give(prepared).get("refused", [])
        self._tell(refused)
        if any(row["error"]["code"] == "STORE_FULL" for row in refused):
            self._has_room.clear()
            self.on_lack()
        else:
            self._has_room.set()
        return refused

    def _tell(self, refused: list[dict[str, Any]]) -> None:
        """Says aloud what the engine refuses, once for as long as it does."""
        told = {(row["kind"], row["name"], row["error"]["code"]) for row in refused}
        for row in refused:
            if (row["kind"], row["name"], row["error"]["code"]) not in self._told:
                _log.warning("configuration_not_taken", kind=row["kind"], name=row["name"], error=row["error"])
        self._told = told

    def _apply_problems(self, objects: ObjectSet, entries: list[Entry]) -> list[Problem]:
        """What the applied documents would make wrong; also an object that stands twice among them."""
        keys = [entry.key for entry in entries]
        others = [entry for key, entry in self.objects.entries.items() if key not in keys]
        found = list(checks.duplicates([*others, *entries]))
        known = {(str(problem.place), problem.field) for problem in found}
        found += [
            problem
            for problem in checks.problems(objects, self._selector_check)
            if (str(problem.place), problem.field) not in known
        ]
        found += checks.dangling(objects, entries)
        found += self._renamings(entries)
        return found

    def _renamings(self, entries: Iterable[Entry]) -> Iterable[Problem]:
        for entry in entries:
            before = self.objects.entries.get(entry.key)
            if before is not None and before.resource.subject != entry.resource.subject:
                what = _SPOKEN.get(entry.resource.kind, "destination")
                message = (
                    f"is '{before.resource.subject}' already: a {what} cannot be renamed; "
                    "apply another object, or delete this one first"
                )
                yield entry.manifest.problem(("spec", "name"), message)

    def _outcomes(self, examined: list[Examined], problems: list[Problem], *, create_only: bool) -> list[Outcome]:
        """One outcome a document; `create_only` as for `apply`.

        A problem that stands in none of them concerns the first: the call is what brought it up.
        """
        by_document: list[list[Problem]] = [list(one.problems) for one in examined]
        for problem in problems:
            by_document[_document_of(problem, examined)].append(problem)
        outcomes = []
        any_refused = any(by_document)
        for one, wrong in zip(examined, by_document, strict=True):
            if wrong:
                outcomes.append(Outcome(one.kind, one.name, "refused", problems=wrong))
                continue
            assert one.manifest is not None  # nothing was wrong with it
            entry = self._entry(one.manifest)
            change, changes = self._change_of(entry)
            if any_refused and change != "unchanged":
                change, changes = "unchanged", [NOT_APPLIED]
            warnings = [] if any_refused else self._warnings_of(entry)
            outcomes.append(Outcome(one.kind, one.name, change, changes, (), None, _engine_name(entry), warnings))
        if create_only:
            refuse(outcomes, _existing(outcomes))
        return outcomes

    def _warnings_of(self, entry: Entry) -> list[str]:
        """What of it does not hold at once, though it is taken."""
        resource = entry.resource
        if isinstance(resource, Queue | Topic) and resource.spec.secure:
            return [NO_PERMISSIONS]
        return self.restarts.warnings(resource) if isinstance(resource, Broker) and self.restarts is not None else []

    def _change_of(self, entry: Entry) -> tuple[str, list[str]]:
        before = self.objects.entries.get(entry.key)
        if before is None:
            return "created", []
        changes = differences(before.resource, entry.resource)
        return ("configured" if changes else "unchanged"), changes

    def _entry(self, manifest: Manifest) -> Entry:
        """What an administrator applies, as an object."""
        return Entry(manifest, OWNER)

    def _base(self, key: Key) -> str | None:
        below = self._below.entries.get(key)
        return digest(below.resource) if below else None


def examine_texts(texts: Iterable[tuple[str, str]]) -> list[Examined]:
    """Each document of several texts; of each there is first what errors call it."""
    return [one for source, text in texts for one in examine_text(text, source)]


def _engine_name(entry: Entry | None) -> str | None:
    if entry is None:
        return None
    resource = entry.resource
    return resource.subscription_name if isinstance(resource, DurableSubscription) else resource.subject


def _names_in_the_engine(objects: ObjectSet, keys: list[Key]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By the engine's word and name, which of these objects are not so when that is refused, as parts of a row.

    A bridge is none while a target of its is missing: all that is sent to its source would be refused.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key in keys:
        entry = objects.entries.get(key)
        name = _engine_name(entry)
        if entry is None or name is None:
            continue
        own = {"kind": ENGINE_WORDS.get(key[0]), "name": name}
        if isinstance(entry.resource, Bridge):
            for target in entry.resource.spec.targets:
                found.setdefault(target.destination, []).append(own)
        elif own["kind"] is not None:
            found.setdefault((own["kind"], name), []).append(own)
    return found


def _note_refusals(outcomes: list[Outcome], refused: list[dict[str, Any]]) -> None:
    """Marks what the engine refused, and that the rest was not applied because of it."""
    by_name = {(row["kind"], row["name"]): row["error"] for row in refused}
    for outcome in outcomes if refused else ():
        outcome.warnings = []
        error = by_name.get((ENGINE_WORDS.get(outcome.kind), outcome.engine_name))
        if error is not None:
            outcome.change, outcome.changes = "refused", []
            outcome.refusal = RefusedError(error["code"], error["subject"], error["message"], error["remedy"])
        elif outcome.change != "unchanged":
            outcome.change, outcome.changes = "unchanged", [NOT_APPLIED]


def differences(before: Resource, after: Resource) -> list[str]:
    """The fields that differ, each as `path: old -> new`."""
    old, new = _flat(before.document(), ""), _flat(after.document(), "")
    paths = [*old, *(path for path in new if path not in old)]
    absent = "(absent)"
    return [
        f"{path}: {old.get(path, absent)} -> {new.get(path, absent)}"
        for path in paths
        if old.get(path, absent) != new.get(path, absent)
    ]


def _flat(value: Any, path: str) -> dict[str, str]:
    if isinstance(value, dict) and value:
        return {key: text for name, part in value.items() for key, text in _flat(part, _join(path, name)).items()}
    if isinstance(value, list) and value:
        return {key: text for index, part in enumerate(value) for key, text in _flat(part, f"{path}[{index}]").items()}
    return {path: json.dumps(value, ensure_ascii=False)} if value not in ({}, []) else {}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _first_of(error: ManifestError) -> str:
    rest = len(error.problems) - 1
    return f"{error.problems[0]}{f'; and {rest} more' if rest else ''}"


def _keys(records: Iterable[Record]) -> list[Key]:
    return [record.key for record in records]


def _document_of(problem: Problem, examined: list[Examined]) -> int:
    """Which document a problem stands in: the last one of its source that begins at or before its line."""
    found = 0
    for index, one in enumerate(examined):
        place = one.manifest.place if one.manifest else one.problems[0].place
        if place.source == problem.place.source and place.line <= problem.place.line:
            found = index
    return found
