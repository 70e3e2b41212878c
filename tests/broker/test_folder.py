"""The folder of manifests: which forms it has, when it is read again, and what the log says of changes."""

import asyncio
import json
import os
import signal
import urllib.request
from typing import Any

import pytest
import sterna.admin

from tests.broker.calls import call
from tests.running import RunningBroker, manifest
from tests.waiting import eventually

HEAD = "apiVersion: sterna.dev/v1alpha1\n"


async def described(broker: RunningBroker, name: str) -> dict[str, Any]:
    """What a queue's manifest says."""
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        found = await admin.resource("Queue", name)
    spec: dict[str, Any] = found.manifest["spec"]
    return spec


@pytest.mark.covers("EMS-ADMIN-A02")
async def test_manifests_of_all_kinds_stand_in_one_file_or_in_several_as_yaml_or_as_json(
    broker_process: Any, channel_to: Any
) -> None:
    documents: list[dict[str, Any]] = [
        {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"maxMessages": 7, "store": "s"}},
        {"kind": "Topic", "metadata": {"name": "t"}, "spec": {"expirationMs": 60_000}},
        {"kind": "Store", "metadata": {"name": "s"}, "spec": {"mode": "async"}},
        {"kind": "Bridge", "metadata": {"name": "b"}, "spec": {"source": {"topic": "t"}, "targets": [{"queue": "q"}]}},
        {"kind": "DurableSubscription", "metadata": {"name": "d"}, "spec": {"topic": "t", "shared": True}},
        {"kind": "Broker", "metadata": {"name": "sterna"}, "spec": {"limits": {"connections": 77}}},
    ]
    as_json = [json.dumps({"apiVersion": "sterna.dev/v1alpha1", **one}) for one in documents]
    # YAML in its own words, not as the JSON that it contains, too.
    as_yaml = [HEAD + "".join(f"{key}: {json.dumps(value)}\n" for key, value in one.items()) for one in documents]
    forms = {
        "one file of YAML": {"all.yaml": "---\n".join(as_yaml)},
        "files of YAML": {f"{number}.yml": text for number, text in enumerate(as_yaml)},
        "files of JSON": {f"{number}.json": text for number, text in enumerate(as_json)},
        "files of both": {
            f"{number}.{'json' if number % 2 else 'yaml'}": (as_json if number % 2 else as_yaml)[number]
            for number in range(len(documents))
        },
    }
    found = []
    for number, files in enumerate(forms.values()):
        broker = broker_process([], name=f"broker{number}")
        (broker.config / "all.yaml").unlink()
        for name, text in files.items():
            (broker.config / name).write_text(text)
        await asyncio.to_thread(broker.start)
        channel = channel_to(broker)
        shown = {}
        for kind, name in (("Queue", "q"), ("Topic", "t"), ("Store", "s"), ("Bridge", "b")):
            one = await call(channel, "Admin/Get", kind=kind, name=name)
            shown[name] = json.loads(one.manifest)["spec"], one.effective
        durables = (await call(channel, "Admin/List", kind="DurableSubscription")).resources
        shown["d"] = [json.loads(one.manifest)["spec"] for one in durables], ""
        found.append(shown)
        assert await asyncio.to_thread(broker.terminate) == 0
    assert found[0]["q"][0] == documents[0]["spec"]
    assert found[0]["d"][0] == [documents[4]["spec"]]
    assert found == [found[0]] * len(forms)


@pytest.mark.covers("EMS-ADMIN-A03", "EMS-ADMIN-B20")
def test_what_is_unknown_in_json_is_refused_with_its_place_and_no_missing_folder_is_made(broker_process: Any) -> None:
    good = {"apiVersion": "sterna.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}}
    broker = broker_process([])
    for unknown, said in (
        ({"spec": {"maxMesages": 1}}, "spec.maxMesages: unknown field"),
        ({"sped": {}}, "sped: unknown field"),
        ({"kind": "Quue"}, "Quue"),
    ):
        (broker.config / "all.yaml").unlink(missing_ok=True)
        (broker.config / "q.json").write_text(json.dumps({**good, **unknown}))
        broker.launch()
        assert broker.wait() == 2
        assert "q.json:1:" in broker.stderr
        assert said in broker.stderr
    missing = broker.folder / "not" / "there"
    elsewhere = broker_process(None, name="elsewhere", config=str(missing))
    elsewhere.launch()
    assert elsewhere.wait() == 2
    assert str(missing) in elsewhere.stderr
    assert not missing.parent.exists()


@pytest.mark.covers("EMS-ADMIN-B18")
async def test_the_folder_is_read_again_when_told_and_of_two_changes_the_later_holds(broker_process: Any) -> None:
    broker = await asyncio.to_thread(broker_process([manifest("Queue", "a", "maxMessages: 1")]).start)
    file = broker.config / "all.yaml"

    async def says(most: int) -> None:
        async def does() -> bool:
            return bool((await described(broker, "a"))["maxMessages"] == most)

        await eventually(does, what=f"maxMessages of {most}")

    # It is looked at by itself, as a whole or not at all: what is wrong with a file is logged, and nothing changes.
    other = broker.config / "other.yaml"
    other.write_text(manifest("Queue", "b", "wrong: 1"))
    await eventually(lambda: "configuration_not_reloaded" in broker.stderr, what="the refusal")
    file.write_text(manifest("Queue", "a", "maxMessages: 2"))
    await eventually(lambda: broker.stderr.count("configuration_not_reloaded") == 2, what="the second refusal")
    await says(1)
    other.unlink()
    await says(2)
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        await admin.apply(manifest("Queue", "a", "maxMessages: 3"))
    await says(3)
    assert "maxMessages: 2" in file.read_text()
    # It is kept, with a restart too; what is edited after it holds from the next reading on.
    assert await asyncio.to_thread(broker.terminate) == 0
    file.write_text(manifest("Queue", "a", "maxMessages: 4"))
    await asyncio.to_thread(broker.start)
    await says(4)
    file.write_text(manifest("Queue", "a", "maxMessages: 5"))
    os.kill(broker.pid, signal.SIGHUP)
    await says(5)


async def test_a_folder_that_cannot_be_used_is_a_warning_and_told_once_when_it_is_read_by_a_signal(
    broker_process: Any,
) -> None:
    broker = await asyncio.to_thread(broker_process([manifest("Queue", "a")]).start)
    async with sterna.connect(f"sterna://{broker.address}") as client:
        await client.send("a", "x")
    file = broker.config / "all.yaml"
    good = file.read_text()

    def readiness() -> dict[str, Any]:
        with urllib.request.urlopen(f"{broker.monitor}/readyz") as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    file.unlink()
    file.symlink_to(broker.folder / "nowhere")
    os.kill(broker.pid, signal.SIGHUP)
    await eventually(lambda: "configuration_not_reloaded" in broker.stderr, what="the refusal")
    found = await asyncio.to_thread(readiness)
    assert found["ready"]
    assert "all.yaml:1:1: cannot be read: No such file" in found["warnings"][0]
    # The next file is seen by the watch, which by then has looked at the first more than twice.
    file.unlink()
    file.write_text(good)
    await eventually(lambda: "configuration_reloaded" in broker.stderr, what="the reading")
    assert broker.stderr.count("configuration_not_reloaded") == 1
    assert "configuration_not_taken" not in broker.stderr
    assert (await asyncio.to_thread(readiness))["warnings"] == []


@pytest.mark.covers("EMS-MON-A04")
async def test_each_operation_of_an_administrator_is_in_the_log_with_its_time(broker_process: Any) -> None:
    broker = await asyncio.to_thread(broker_process([manifest("Queue", "a"), manifest("Topic", "t")]).start)
    async with (
        sterna.connect(f"sterna://{broker.address}") as client,
        sterna.admin.connect(f"sterna://{broker.address}") as admin,
    ):
        await client.send("a", "x")
        await admin.apply(manifest("Queue", "b"))
        await admin.delete("Queue", "b")
        await admin.purge_queue("a")
        await admin.purge_topic("t")
        for one in await admin.connections():
            await admin.close_connection(one.id, reason="a test")
    assert await asyncio.to_thread(broker.terminate) == 0
    lines = [json.loads(line) for line in broker.stderr.splitlines() if line.startswith("{")]
    audited = [line for line in lines if "actor" in line]
    said = [(line["event"], line.get("objects", line.get("name", ""))) for line in audited]
    assert said == [
        ("configuration_changed", ["Queue b"]),
        ("configuration_changed", ["Queue b"]),
        ("deleted", "b"),
        ("purged", "a"),
        ("purged", "t"),
        ("connection_closed", ""),
    ]
    assert audited[3]["messages"] == 1
    for line in lines:
        assert line["timestamp"].startswith("20"), line
