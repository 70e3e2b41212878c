"""`sterna-audit job` with audits: the command starts a Spark of its own, and says what came of them."""

import pytest
from sterna_audit.snapshots.stores import Directory, open_store

from tests.audit.conftest import BUCKET_KEYS
from tests.audit.jobs import NOBODY, Jobs, MakeBroker, fill, started
from tests.audit.sessions import settings
from tests.broker.conftest import broker_process
from tests.support.exports import exported
from tests.support.seeds import is_complete
from tests.waiting import eventually

__all__ = ["broker_process"]

# The session that others share is of no use here.
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow_callbacks(2_000), pytest.mark.usefixtures("tier_spark")]
#: Each starts Sparks whose start alone takes as long as most tests.
LONG = pytest.mark.skipif(not is_complete(), reason="takes a minute, for make test-all")


async def test_a_planted_loss_is_named_and_repeating_changes_nothing(
    broker_process: MakeBroker, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that confirms a message and keeps nothing of it, one that cannot be reached, and a kill on the way."""
    told = jobs.folder / "victim"
    with monkeypatch.context() as patch:
        patch.setenv("STERNA_PLANTED_FAULT", "lose-message:7")
        patch.setenv("STERNA_PLANTED_TOLD", str(told))
        _, alpha = await started(broker_process, "alpha")
    jobs.brokers |= {"alpha": alpha, "gamma": NOBODY}
    audits = ["chain", "ledgers"]
    jobs.fields["audit"] = {
        "jobs": audits,
        "keys": [jobs.public()],
        "ledgers": str(jobs.folder / "books"),
        "master": "local[2]",
        "memory": "1g",
        "conf": settings(),
    }
    assert (await jobs.run("before", audit=None)).code == 1
    (jobs.folder / "books").mkdir()
    await fill(alpha, 20, ledger=jobs.folder / "books")
    _, number = told.read_text().split()

    process = await jobs.start("tonight")
    findings = jobs.results("tonight") / "findings"
    await eventually(lambda: findings.is_dir(), timeout_s=120)
    process.kill()
    await process.communicate()
    assert not (jobs.results("tonight") / "result.json").exists()

    ended = await jobs.run("tonight")
    assert ended.code == 8, ended.said
    found = ended.result
    assert (found["run"], found["verdict"]) == ("tonight", "violated")
    assert {one["broker"]: one["state"] for one in found["snapshots"]} == {"gamma": "failed", "alpha": "there already"}
    assert [one["name"] for one in found["audits"]] == audits
    assert next(one for one in found["audits"] if one["name"] == "ledgers") == {
        "name": "ledgers",
        "verdict": "violated",
        # The message, and that the ledgers vouch for less than they should.
        "violated": 2,
    }
    worst = found["worst"][0]
    assert (worst["audit"], worst["what"], worst["verdict"]) == ("ledgers", "not-stored", "violated")
    assert worst["message"].rpartition(":")[2] == number
    assert found["counts"] == {"violated": 2, "not provable": 0, "in flight": 0, "ok": 1}
    assert found["report"] == str(jobs.results("tonight") / "report.html")
    assert worst["message"] in (jobs.results("tonight") / "report.html").read_text()
    assert jobs.cuts("alpha") == [1, 2]

    files = {one: one.stat().st_mtime_ns for one in jobs.results("tonight").rglob("*")}
    again = await jobs.run("tonight")
    assert (again.code, again.result) == (8, found)
    assert files == {one: one.stat().st_mtime_ns for one in jobs.results("tonight").rglob("*")}
    assert jobs.cuts("alpha") == [1, 2]


@LONG
async def test_without_anything_violated_the_missing_broker_leaves_it_not_provable(
    broker_process: MakeBroker, jobs: Jobs
) -> None:
    """Snapshots that are there are audited as they are, where none are to be taken."""
    _, url = await started(broker_process, "alpha")
    store = Directory(jobs.folder / "snapshots")
    await exported(url, store)
    await fill(url)
    await exported(url, store)
    jobs.brokers |= {"alpha": url}
    audit = {"jobs": ["chain"], "keys": [jobs.public()], "master": "local[1]", "memory": "1g", "conf": settings()}
    jobs.brokers["gamma"] = NOBODY
    ended = await jobs.run("in-part", take=None, audit=audit)
    assert (ended.code, ended.result["verdict"]) == (0, "not provable"), ended.said
    assert [(one["name"], one["verdict"]) for one in ended.result["audits"]] == [("chain", "ok")]
    assert ended.result["snapshots"][0] == {
        "broker": "gamma",
        "state": "failed",
        "error": f"there are no snapshots of standalone/gamma in {store.uri}",
    }
    # A Spark that does not start is told, and no end of the run.
    for _ in range(2):
        ended = await jobs.run("broken", take=None, audit={**audit, "memory": "1k"})
        assert (ended.code, ended.result["verdict"]) == (1, "failed")
        assert "the JVM ended with 1" in ended.result["error"]


@LONG
async def test_snapshots_and_results_may_be_in_a_bucket_that_spark_cannot_read(
    broker_process: MakeBroker, jobs: Jobs, bucket: str
) -> None:
    _, jobs.brokers["alpha"] = await started(broker_process, "alpha")
    audit = {"jobs": ["chain"], "keys": [jobs.public()], "master": "local[1]", "memory": "1g", "conf": settings()}
    results = bucket.replace("/snapshots?", "/results?")
    jobs.fields |= {"snapshots": bucket, "results": results, "audit": audit}
    ended = await jobs.run("tonight")
    assert (ended.code, ended.result["verdict"]) == (0, "ok"), ended.said
    store = open_store(results)
    assert ended.result["report"] == f"{store.uri}/messaging/nightly/tonight/report.html"
    names = {entry.path.removeprefix("messaging/nightly/tonight/") for entry in store.files("")}
    assert {"begun.json", "findings.json", "report.html", "result.json"} <= names
    assert any(name.startswith("findings/chain/") for name in names)
    again = await jobs.run("tonight")
    assert (again.code, again.result) == (0, ended.result)
    assert not any(value in ended.said for name, value in BUCKET_KEYS.items() if "KEY" in name)
