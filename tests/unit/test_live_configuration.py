"""Changes of the configuration: what is refused, what is kept, who wins after an edit of the folder."""

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from sterna_broker.configuration.applied import AppliedFolder
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.configuration.source import FolderSource
from sterna_broker.refusals import RefusedError
from sterna_resources import ManifestError
from sterna_resources.reading import Manifest, read_files


def manifest(kind: str, name: str, spec: str = "") -> str:
    return f"apiVersion: sterna.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def no_selector_check(text: str) -> None:
    if text == "bad":
        raise ValueError("is no selector", 2)


class Engine:
    """Records what it is told; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.configurations: list[dict[str, Any]] = []
        self.refuse: set[str] = set()

    def configure(self, text: str) -> str:
        configuration: dict[str, Any] = json.loads(text)
        self.configurations.append(configuration)
        error = {"code": "IN_USE", "subject": "x", "message": "is in use", "remedy": "wait"}
        rows = [row for row in configuration["queues"] if row["name"] in self.refuse]
        return json.dumps({"refused": [{"kind": "queue", "name": row["name"], "error": error} for row in rows]})

    @property
    def queues(self) -> dict[str, Any]:
        return {row["name"]: row for row in self.configurations[-1]["queues"]}


class House:
    """A folder of manifests, a data folder, and a live configuration over both."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.data = tmp_path / "config", tmp_path / "data"
        self.folder.mkdir()
        self.data.mkdir()
        self.engine = Engine()

    def write(self, *documents: str, file: str = "all.yaml") -> None:
        (self.folder / file).write_text("---\n".join(documents))

    async def start(self) -> LiveConfiguration:
        applied = AppliedFolder(self.data / "applied")
        live = LiveConfiguration(FolderSource(self.folder), applied, no_selector_check)
        await live.load()
        live.connect(self.engine.configure)
        return live

    def kept(self) -> list[str]:
        folder = self.data / "applied"
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_folder_is_read_as_a_whole_and_reaches_the_engine_with_what_holds(house: House) -> None:
    house.write(manifest("Queue", "any", "name: 'a.>', maxMessages: 3"), manifest("Queue", "b", "name: a.b"))
    house.write(manifest("Broker", "main", "stores: [{name: fast, mode: async}]"), file="broker.yml")
    (house.folder / "README.md").write_text("not a manifest")
    await house.start()
    configuration = house.engine.configurations[-1]
    [queue] = configuration["queues"]
    assert (queue["name"], queue["maxMessages"], queue["static"]) == ("a.b", 3, True)
    assert {"name": "fast", "mode": "async", "quota_bytes": 0} in configuration["stores"]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([manifest("Queue", "a"), manifest("Queue", "a")], "metadata.name: a Queue of this name stands at"),
        ([manifest("Queue", "a"), manifest("Queue", "b", "name: a")], "spec.name: the queue 'a' is described at"),
        ([manifest("Broker", "a"), manifest("Broker", "b")], "the broker is described at"),
        ([manifest("Queue", "a", "store: nope")], "spec.store: no store 'nope': there are $sys.failsafe"),
        ([manifest("Store", "a"), manifest("Store", "b", "name: a")], "spec.name: the store 'a' is described at"),
        (
            [manifest("Broker", "x", "stores: [{name: a}]"), manifest("Store", "a")],
            "spec.name: the store 'a' stands in the Broker manifest already",
        ),
        (
            [
                manifest("Queue", "a", "name: 'a.*', store: $sys.failsafe"),
                manifest("Queue", "b", "name: '*.b', store: $sys.nonfailsafe"),
            ],
            "spec.store: '$sys.nonfailsafe' conflicts with '$sys.failsafe' of 'a.*'",
        ),
        (
            [
                manifest("Queue", "a", "name: 'a.*', store: $sys.failsafe"),
                manifest("Queue", "b", "name: a.b, store: $sys.nonfailsafe"),
            ],
            "spec.store: '$sys.nonfailsafe' conflicts with '$sys.failsafe' of 'a.*'",
        ),
        (
            [manifest("DurableSubscription", "d", "topic: a, clientId: c, selector: bad")],
            "spec.selector: is no selector (at character 3)",
        ),
        (
            [manifest("Bridge", "d", "source: {topic: a}, targets: [{queue: b, selector: bad}]")],
            "spec.targets[0].selector: is no selector",
        ),
    ],
)
async def test_objects_that_do_not_fit_together_are_refused(house: House, documents: list[str], expected: str) -> None:
    house.write(*documents)
    with pytest.raises(ManifestError) as caught:
        await house.start()
    assert expected in str(caught.value)
    assert "all.yaml:" in str(caught.value)


@pytest.mark.covers("EMS-DEST-A43")
async def test_entries_for_different_kinds_may_name_different_stores(house: House) -> None:
    queue = manifest("Queue", "a", "name: 'a.*', store: $sys.failsafe")
    house.write(queue, manifest("Topic", "b", "name: 'a.>', store: $sys.nonfailsafe"))
    await house.start()
    house.write(queue, manifest("Queue", "b", "name: 'a.>', store: $sys.nonfailsafe"))
    with pytest.raises(ManifestError, match="a destination has one store"):
        await house.start()


async def test_what_is_applied_is_kept_over_a_restart(house: House) -> None:
    house.write(manifest("Queue", "a", "maxMessages: 1"))
    live = await house.start()
    outcomes = await live.apply(manifest("Queue", "a", "maxMessages: 2") + "---\n" + manifest("Topic", "t"), "x")
    assert [(outcome.name, outcome.change, outcome.changes) for outcome in outcomes] == [
        ("a", "configured", ["spec.maxMessages: 1 -> 2"]),
        ("t", "created", []),
    ]
    assert house.engine.queues["a"]["maxMessages"] == 2
    again = await house.start()
    assert house.engine.queues["a"]["maxMessages"] == 2
    assert again.objects.entries[("Topic", "t")].owner == "admin"
    assert [outcome.change for outcome in await again.apply(manifest("Topic", "t"), "x")] == ["unchanged"]


async def test_an_edit_of_the_folder_after_an_apply_wins(house: House) -> None:
    house.write(manifest("Queue", "a", "maxMessages: 1"))
    live = await house.start()
    await live.apply(manifest("Queue", "a", "maxMessages: 2"), "x")
    await live.reload()
    assert house.engine.queues["a"]["maxMessages"] == 2
    house.write(manifest("Queue", "a", "maxMessages: 3"))
    await live.reload()
    assert house.engine.queues["a"]["maxMessages"] == 3
    assert house.kept() == []


async def test_what_is_deleted_stays_deleted_until_the_folder_is_edited(house: House) -> None:
    house.write(manifest("Queue", "a", "maxMessages: 1"), manifest("Queue", "b"))
    live = await house.start()
    await live.delete(live.objects.entries[("Queue", "a")])
    assert list(house.engine.queues) == ["b"]
    live = await house.start()
    assert list(house.engine.queues) == ["b"]
    house.write(manifest("Queue", "a", "maxMessages: 9"), manifest("Queue", "b"))
    await live.reload()
    assert sorted(house.engine.queues) == ["a", "b"]


@pytest.mark.covers("EMS-DEST-A53")
async def test_the_source_of_a_bridge_cannot_be_deleted_its_target_can(house: House) -> None:
    bridge = manifest("Bridge", "copy", "source: {queue: a}, targets: [{queue: b}]")
    house.write(manifest("Queue", "a"), manifest("Queue", "b"), bridge)
    live = await house.start()
    with pytest.raises(RefusedError, match="is the source of the bridge 'copy'") as caught:
        await live.delete(live.objects.entries[("Queue", "a")])
    assert caught.value.code == "IN_USE"
    await live.delete(live.objects.entries[("Queue", "b")])
    # The bridge now leads nowhere, which must not keep a broker from starting.
    again = await house.start()
    await again.delete(again.objects.entries[("Bridge", "copy")])
    await again.delete(again.objects.entries[("Queue", "a")])
    assert house.engine.queues == {}


async def test_a_store_reaches_the_engine_and_stays_while_a_destination_names_it(house: House) -> None:
    store = manifest("Store", "fast", "mode: async, quotaBytes: 5")
    house.write(store, manifest("Queue", "a", "store: fast"), manifest("Store", "x", "name: $sys.failsafe"))
    live = await house.start()
    assert {"name": "fast", "mode": "async", "quota_bytes": 5} in house.engine.configurations[-1]["stores"]
    with pytest.raises(RefusedError, match="the Queue a is in the store 'fast'") as caught:
        await live.delete(live.objects.entries[("Store", "fast")])
    assert caught.value.code == "IN_USE"
    await live.delete(live.objects.entries[("Queue", "a")])
    await live.delete(live.objects.entries[("Store", "fast")])
    assert [row["name"] for row in house.engine.configurations[-1]["stores"]] == ["$sys.failsafe", "$sys.nonfailsafe"]


async def test_fields_of_kubernetes_say_nothing_to_a_single_broker(house: House) -> None:
    house.write(manifest("Queue", "a", "clusterRef: {name: c}, deletionPolicy: delete, paused: {}, broker: b0"))
    await house.start()
    [queue] = house.engine.configurations[-1]["queues"]
    assert not {"clusterRef", "deletionPolicy", "adoption", "paused", "broker"} & queue.keys()


async def test_nothing_is_applied_when_one_document_is_refused(house: House) -> None:
    live = await house.start()
    text = manifest("Queue", "a") + "---\n" + manifest("Queue", "b", "maxMesages: 1")
    first, second = await live.apply(text, "x.yaml")
    assert (first.change, second.change) == ("unchanged", "refused")
    assert first.changes == ["not applied: another document of the same call is refused"]
    assert str(second.problems[0]).startswith("x.yaml:9:8: spec.maxMesages: unknown field")
    assert live.objects.entries == {}
    assert house.kept() == []


async def test_an_apply_is_judged_together_with_what_exists(house: House) -> None:
    house.write(manifest("Queue", "a", "name: orders"), manifest("Topic", "any", "name: 'news.>'"))
    live = await house.start()
    [same_name] = await live.apply(manifest("Queue", "other", "name: orders"), "x")
    assert "is described at" in str(same_name.problems[0])
    [renamed] = await live.apply(manifest("Queue", "a", "name: else"), "x")
    assert "a destination cannot be renamed" in str(renamed.problems[0])
    [dangling] = await live.apply(manifest("Bridge", "b", "source: {topic: no}, targets: [{queue: orders}]"), "x")
    assert "there is no topic 'no'" in str(dangling.problems[0])
    [fine] = await live.apply(manifest("Bridge", "b", "source: {topic: news.a}, targets: [{queue: orders}]"), "x")
    assert fine.change == "created"


async def test_who_only_creates_changes_nothing_that_is_there(house: House) -> None:
    live = await house.start()

    async def creates(most: int) -> Any:
        [outcome] = await live.apply(manifest("Queue", "a", f"maxMessages: {most}"), "x", create_only=True)
        return outcome

    found = await asyncio.gather(*(creates(most) for most in (1, 2, 1)))
    assert [one.change for one in found] == ["created", "refused", "unchanged"]
    assert str(found[1].refusal.code) == "ALREADY_EXISTS"
    assert "maxMessages" in str(found[1].refusal)
    both = manifest("Queue", "b") + "---\n" + manifest("Queue", "a", "maxMessages: 3")
    assert [one.change for one in await live.apply(both, "x", create_only=True)] == ["unchanged", "refused"]
    (kept,) = live.objects.entries.values()
    assert kept.resource.document()["spec"] == {"maxMessages": 1}


async def test_a_dry_run_says_what_would_change_and_changes_nothing(house: House) -> None:
    live = await house.start()
    [outcome] = await live.apply(manifest("Queue", "a"), "x", dry_run=True)
    assert outcome.change == "created"
    assert live.objects.entries == {}
    assert len(house.engine.configurations) == 1


async def test_what_the_engine_refuses_is_undone_and_told(house: House) -> None:
    house.write(manifest("Queue", "a", "maxMessages: 1"))
    live = await house.start()
    house.engine.refuse = {"b"}
    text = manifest("Queue", "a", "maxMessages: 5") + "---\n" + manifest("Queue", "b")
    first, second = await live.apply(text, "x")
    assert (first.change, second.change) == ("unchanged", "refused")
    assert second.refusal is not None
    assert second.refusal.code == "IN_USE"
    assert house.engine.queues["a"]["maxMessages"] == 1
    assert house.kept() == []


async def test_a_bad_reload_changes_nothing(house: House) -> None:
    house.write(manifest("Queue", "a"))
    live = await house.start()
    house.write(manifest("Queue", "a", "bad: 1"))
    with pytest.raises(ManifestError):
        await live.reload()
    assert list(live.objects.entries) == [("Queue", "a")]


async def test_a_bad_reload_is_a_warning_until_a_good_one(house: House) -> None:
    house.write(manifest("Queue", "a"))
    live = await house.start()
    house.write(manifest("Queue", "a", "bad: 1, worse: 2"))
    with pytest.raises(ManifestError):
        await live.reload()
    [warning] = live.warnings
    assert "would not be at the next start" in warning
    assert "all.yaml:4:8: spec.bad: unknown field" in warning
    assert "and 1 more" in warning
    house.write(manifest("Queue", "a"))
    await live.reload()
    assert live.warnings == []


@pytest.mark.parametrize("form", ["a link to nowhere", "a link to itself", "a pipe"])
async def test_what_cannot_be_read_takes_nothing_away(house: House, form: str) -> None:
    house.write(manifest("Queue", "a"))
    live = await house.start()
    file = house.folder / "all.yaml"
    file.unlink()
    if form == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file if form == "a link to itself" else house.folder / "nowhere")
    with pytest.raises(ManifestError, match=r"all\.yaml:1:1: cannot be read: "):
        await live.reload()
    assert list(live.objects.entries) == [("Queue", "a")]
    file.unlink()
    file.mkdir()
    await live.reload()
    assert list(live.objects.entries) == []


def _exchanges(house: House, times: int) -> Callable[[Iterable[Path]], list[Manifest]]:
    """Reads files, and so many times exchanges all of them after the first, as Kubernetes does: a queue moves up."""
    left = times

    def read(files: Iterable[Path]) -> list[Manifest]:
        nonlocal left
        first, *rest = files
        found = read_files([first])
        if left:
            left -= 1
            (house.folder / "a.yaml").write_text(manifest("Queue", "moves"))
            (house.folder / "b.yaml").write_text(manifest("Queue", "new"))
        return found + read_files(rest)

    return read


@pytest.mark.parametrize("times", [1, 100])
async def test_files_exchanged_while_they_are_read_count_all_or_none(
    house: House, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write(manifest("Queue", "old"), file="a.yaml")
    house.write(manifest("Queue", "moves"), file="b.yaml")
    live = await house.start()
    monkeypatch.setattr("sterna_broker.configuration.source.read_files", _exchanges(house, times))
    if times > 1:
        with pytest.raises(ManifestError, match="its files changed each of 5 times"):
            await live.reload()
    else:
        await live.reload()
    assert {"moves"} <= set(house.engine.queues)
    assert all("moves" in {row["name"] for row in one["queues"]} for one in house.engine.configurations)


async def test_a_kept_change_that_cannot_be_read_is_named(house: House) -> None:
    (house.data / "applied").mkdir()
    (house.data / "applied" / "Queue.a.json").write_text("{")
    with pytest.raises(ManifestError, match=r"Queue\.a\.json:1:1: cannot be read as a kept change"):
        await house.start()


async def test_long_object_names_are_kept_under_names_that_a_file_may_have(house: House) -> None:
    live = await house.start()
    long_names = ["a" * 250 + "1", "a" * 250 + "2"]
    await live.apply("---\n".join(manifest("Queue", name, f"name: q{name[-1]}") for name in long_names), "x")
    assert len(house.kept()) == 2
    again = await house.start()
    assert [name for _, name in again.objects.entries] == long_names
