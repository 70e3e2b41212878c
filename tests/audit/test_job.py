"""`sterna-audit job` over real brokers, as a schedule starts it: once, again, and again after it was killed."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import sterna
import sterna.admin
from sterna_audit.exporting import export

from tests.access.conftest import users_file
from tests.audit.jobs import NOBODY, Jobs, MakeBroker, fill, started
from tests.audit.kept import PLAIN, VERIFIER
from tests.broker.conftest import broker_process
from tests.support.exports import holding
from tests.waiting import eventually

__all__ = ["broker_process", "users_file"]

# What is kept is verified between runs, on the test's own loop.
pytestmark = [pytest.mark.timeout(240), pytest.mark.slow_callbacks(2_000)]


async def waiting_cut(url: str) -> int:
    """Has the broker begin a cut, which nobody takes yet; its number."""
    async with sterna.admin.connect(url) as admin:
        cut = await eventually(lambda: admin.begin_cut(wait=5), timeout_s=30)
        assert cut is not None
        return cut.number


async def test_a_run_takes_each_broker_once_however_often_it_is_repeated(
    broker_process: MakeBroker, jobs: Jobs
) -> None:
    _, jobs.brokers["alpha"] = await started(broker_process, "alpha")
    _, jobs.brokers["beta"] = await started(broker_process, "beta")
    await fill(jobs.brokers["alpha"])
    first = await jobs.run("20261124T000000Z")
    assert first.code == 0, first.said
    assert first.result["verdict"] == "ok"
    assert first.result["snapshots"] == [
        {"broker": "alpha", "state": "new", "cut": 1},
        {"broker": "beta", "state": "new", "cut": 1},
    ]
    result = jobs.results("20261124T000000Z") / "result.json"
    assert json.loads(result.read_text()) == first.result
    before = jobs.snapshots.files("")
    again = await jobs.run("20261124T000000Z")
    assert (again.code, again.result, jobs.snapshots.files("")) == (0, first.result, before)
    assert "was done before" in again.said
    # Its result is lost: the snapshots are there all the same.
    result.unlink()
    again = await jobs.run("20261124T000000Z")
    assert {one["state"] for one in again.result["snapshots"]} == {"there already"}
    assert again.result["started_ms"] == first.result["started_ms"]
    assert jobs.snapshots.files("") == before
    # Another run takes others.
    assert (await jobs.run("20261125T000000Z")).code == 0
    assert (jobs.cuts("alpha"), jobs.cuts("beta")) == ([1, 2], [1, 2])
    assert [jobs.run_of("beta", cut) for cut in (1, 2)] == ["20261124T000000Z", "20261125T000000Z"]


async def test_a_broker_that_cannot_be_reached_fails_the_run_until_it_is_there(
    broker_process: MakeBroker, jobs: Jobs
) -> None:
    _, jobs.brokers["alpha"] = await started(broker_process, "alpha")
    jobs.brokers["beta"] = NOBODY
    ended = await jobs.run("tonight")
    assert (ended.code, ended.result["verdict"]) == (1, "failed")
    [beta, alpha] = ended.result["snapshots"]
    assert (alpha["broker"], alpha["state"], beta["broker"], beta["state"]) == ("alpha", "new", "beta", "failed")
    assert "127.0.0.1:1" in beta["error"]
    assert "there is no snapshot of beta" in ended.result["error"]
    # A run that failed is repeated, with what it has.
    _, jobs.brokers["beta"] = await started(broker_process, "beta")
    ended = await jobs.run("tonight")
    assert (ended.code, ended.result["verdict"]) == (0, "ok")
    assert [one["state"] for one in ended.result["snapshots"]] == ["there already", "new"]
    assert (jobs.cuts("alpha"), jobs.cuts("beta")) == ([1], [1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_run_that_is_ended_in_the_middle_goes_on_with_its_cut(
    broker_process: MakeBroker, jobs: Jobs, number: signal.Signals
) -> None:
    _, url = await started(broker_process, "alpha")
    jobs.brokers["alpha"] = url
    await fill(url, 12_000)
    slow = {**jobs.config()["take"], "rate": "100k"}
    process = await jobs.start("tonight", take=slow)
    await eventually(lambda: any("deliverables" in one.path for one in jobs.snapshots.files("")), timeout_s=60)
    process.send_signal(number)
    await process.communicate()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert jobs.cuts("alpha") == []
    assert not (jobs.results("tonight") / "result.json").exists()
    async with holding(url) as source:
        cut = await source.cut()
    ended = await jobs.run("tonight")
    assert ended.code == 0, ended.said
    assert ended.result["snapshots"] == [{"broker": "alpha", "state": "new", "cut": cut.number}]
    assert jobs.cuts("alpha") == [cut.number]


async def test_a_broker_that_has_not_heard_of_a_snapshot_hears_of_it_when_the_run_is_repeated(
    broker_process: MakeBroker, jobs: Jobs
) -> None:
    """As after a kill between the manifest and the broker's answer."""
    _, url = await started(broker_process, "alpha")
    jobs.brokers["alpha"] = url
    marks = {"job": "messaging/nightly", "run": "tonight"}

    class Ended(Exception):  # noqa: N818 - it is no error
        pass

    async def ended(_: str) -> None:
        raise Ended

    with pytest.raises(Ended):
        async with holding(url) as source:
            source.exported = ended  # type: ignore[assignment, method-assign]
            await export(source, jobs.snapshots, PLAIN, verifier=VERIFIER, extra_options=marks)
    again = await jobs.run("tonight")
    assert again.result["snapshots"] == [{"broker": "alpha", "state": "there already", "cut": 1}]
    # It has: the next cut is another.
    assert await waiting_cut(url) == 2
    # That of another run is no run's own, also where the broker has not heard of it.
    with pytest.raises(Ended):
        async with holding(url) as source:
            source.exported = ended  # type: ignore[assignment, method-assign]
            await export(source, jobs.snapshots, PLAIN, verifier=VERIFIER, extra_options={**marks, "run": "other"})
    ended_run = await jobs.run("next")
    assert ended_run.result["snapshots"] == [{"broker": "alpha", "state": "new", "cut": 3}]
    assert jobs.cuts("alpha") == [1, 2, 3]


async def test_a_cut_that_waited_since_before_the_run_is_kept_and_another_is_taken(
    broker_process: MakeBroker, jobs: Jobs
) -> None:
    """What has happened since it was begun would not be in it."""
    _, url = await started(broker_process, "alpha")
    jobs.brokers["alpha"] = url
    assert await waiting_cut(url) == 1
    await fill(url, 3)
    ended = await jobs.run("tonight")
    assert ended.result["snapshots"] == [{"broker": "alpha", "state": "new", "cut": 2}]
    assert (jobs.cuts("alpha"), jobs.run_of("alpha", 1), jobs.run_of("alpha", 2)) == ([1, 2], None, "tonight")


async def test_what_is_too_old_is_removed_and_the_chain_verifies(broker_process: MakeBroker, jobs: Jobs) -> None:
    _, jobs.brokers["alpha"] = await started(broker_process, "alpha")
    jobs.fields["keep"] = {"snapshots": "2", "results": 2}
    for run in ("one", "two", "three"):
        ended = await jobs.run(run)
        assert (ended.code, ended.result.get("notes")) == (0, None), ended.said
    assert jobs.cuts("alpha") == [2, 3]
    assert sorted(one.name for one in jobs.results().iterdir()) == ["three", "two"]
    # Somebody else's folder is nobody's to remove, and one that was half removed goes.
    (jobs.results("mine")).mkdir()
    (jobs.results("two") / "result.json").unlink()
    assert (await jobs.run("four")).code == 0
    assert sorted(one.name for one in jobs.results().iterdir()) == ["four", "mine", "three"]
    # What cannot be pruned is said, and changes no verdict.
    (jobs.folder / "snapshots/standalone/alpha/pruned.json").write_text("{")
    jobs.fields["take"] = jobs.config()["take"]
    ended = await jobs.run("five")
    assert (ended.code, ended.result["verdict"]) == (1, "failed")
    assert "broken-anchor" in ended.result["error"]
    assert "three" in {one.name for one in jobs.results().iterdir()}


async def test_a_broker_that_is_another_than_the_file_says_is_not_taken(broker_process: MakeBroker, jobs: Jobs) -> None:
    _, jobs.brokers["beta"] = await started(broker_process, "alpha")
    ended = await jobs.run("tonight")
    assert ended.code == 1
    assert "the broker says that it is standalone/alpha, and the file that it is standalone/beta" in ended.said
    assert jobs.snapshots.files("") == []


async def test_a_password_is_read_from_its_file_and_said_nowhere(
    broker_process: MakeBroker, users_file: Callable[..., Path], jobs: Jobs
) -> None:
    users = await asyncio.to_thread(users_file, auditor="only-right-one")
    _, jobs.brokers["alpha"] = await started(broker_process, "alpha", users=str(users), insecure=True)
    secret = jobs.folder / "password"
    jobs.fields["connect"] = {"user": "auditor", "password_file": str(secret)}
    secret.write_text("not-the-right-one")
    ended = await jobs.run("tonight")
    assert (ended.code, ended.result["verdict"]) == (1, "failed")
    said = ended.said + json.dumps(ended.result)
    secret.unlink()
    ended = await jobs.run("tonight")
    assert (ended.code, f"No such file or directory: {secret}" in ended.result["error"]) == (1, True)
    secret.write_text("only-right-one\n")
    ended = await jobs.run("tonight")
    assert ended.code == 0, ended.said
    kept = [
        one for name in ("results", "snapshots") for one in sorted((jobs.folder / name).rglob("*")) if one.is_file()
    ]
    assert any(one.name == "manifest.json" for one in kept)
    said += ended.said + "".join(one.read_text(errors="replace") for one in kept)
    assert "right-one" not in said
