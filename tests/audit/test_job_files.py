"""The file that a job is given, and the result that it gives: fields by name, and never more bytes than fit."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.running import Result as Audited
from sterna_audit.audits.running import Run
from sterna_audit.job import config, plan
from sterna_audit.job.config import ConfigError
from sterna_audit.job.result import BYTES_MAX, Result, Taken, clipped
from sterna_audit.job.runs import Runs

from tests.audit.golden.make import KEY
from tests.support.seeds import seed

WHOLE: dict[str, Any] = {
    "job": "messaging/nightly",
    "cluster": "bank",
    "brokers": [{"name": "bank-broker-0", "url": "sternas://bank-broker-0.bank:7222"}],
    "connect": {"user": "auditor", "password_file": "/secrets/password", "ca_file": "/secrets/ca.crt"},
    "snapshots": "/snapshots",
    "take": {"principals": "none", "unsigned": True, "rate": "20M", "wait_s": 60},
    "audit": {"jobs": ["chain"], "unsigned": True, "ledgers": "/ledgers", "from": "12", "memory": "2g", "conf": {}},
    "results": "s3://audits/results?endpoint=127.0.0.1:9&scheme=http&region=us-east-1",
    "keep": {"snapshots": "30,90d", "results": 30},
}


def read(folder: Path, values: Any) -> config.Config:
    path = folder / "run.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return config.read(path)


def changed(steps: str, value: Any) -> dict[str, Any]:
    """The whole file with one field changed; a value of None takes it away."""
    values: dict[str, Any] = json.loads(json.dumps(WHOLE))
    at: Any = values
    *folders, last = steps.split(".")
    for step in folders:
        at = at[int(step) if step.isdigit() else step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return values


def test_a_whole_file_is_a_plan(tmp_path: Path) -> None:
    made = plan.made(read(tmp_path, WHOLE), config.check_run("20261124T000000Z"))
    assert (made.taking is not None, made.judging is not None) == (True, True)
    assert made.marks == {"job": "messaging/nightly", "run": "20261124T000000Z"}
    least = {name: WHOLE[name] for name in ("job", "cluster", "brokers", "snapshots", "take", "results")}
    assert plan.made(read(tmp_path, {**least, "audit": None}), "now").judging is None


@pytest.mark.parametrize(
    ("steps", "value", "said"),
    [
        ("cluster", None, "cluster: Field required"),
        ("speed", 1, "speed: there is no such field"),
        ("connect.password", "hunter2", "connect.password: there is no such field"),
        ("brokers.0.port", 7222, "brokers[0].port: there is no such field"),
        ("brokers.0.name", "../x", "brokers[0].name: this cannot be the name of a folder"),
        ("brokers.0.url", "http://x", "brokers[0].url: "),
        ("brokers.0.url", "sterna://x?password=hunter2", "brokers[0].url: a broker's URL has no options here"),
        ("brokers.0.url", "sterna://hunter2@x", "brokers[0].url: "),
        ("brokers", [], "brokers: "),
        ("brokers", [*WHOLE["brokers"], *WHOLE["brokers"]], "brokers has a name twice"),
        ("job", "nightly", "job: this is not as namespace/name"),
        ("job", "../x/y", "job: this is not as namespace/name"),
        ("snapshots", "gs://x", "snapshots: gs:// is not known"),
        ("snapshots", "s3://a:hunter2@b", "snapshots: a URI holds no password"),
        ("results", "/snapshots/", "results is where the snapshots are"),
        ("results", "/snapshots//.", "results is where the snapshots are"),
        ("results", "file:///snapshots", "results is where the snapshots are"),
        ("results", "x" * 1_001, "results: a URI has at most 1000 bytes"),
        ("take.wait_s", "60", "take.wait_s: Input should be a valid integer"),
        ("take.rate", "9k", "take.rate: '9k' is no number of bytes from 100k on"),
        ("take.unsigned", False, "take: either sign_key_file or unsigned has to be said"),
        ("take.principals", "hashed", "take: principals_key_file is needed for hashed principals"),
        ("take.principals", "clear", "take.principals: Input should be 'hashed', 'plain' or 'none'"),
        ("audit.unsigned", False, "audit: either keys or unsigned has to be said"),
        ("audit.from", "yesterday", "audit.from: 'yesterday' is neither a cut's number nor a time"),
        ("audit.conf", {"x": "y"}, "audit.conf: 'x' is not as spark.name"),
        ("audit.memory", "much", "audit.memory: this is no size"),
        ("audit.ledgers", "gs://x", "audit: gs:// is not known"),
        ("keep.snapshots", "ten", "keep.snapshots: 'ten' is neither a number of cuts nor an age"),
        ("keep.results", 0, "keep.results: "),
        ("connect.user", "", "connect: user and password_file go together"),
        ("connect.key_file", "/x", "connect: certificate_file and key_file go together"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, steps: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, changed(steps, value))
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_what_the_file_names_is_looked_at_before_anything_is_done(tmp_path: Path) -> None:
    def refused(values: dict[str, Any]) -> str:
        with pytest.raises(ConfigError) as raised:
            plan.made(read(tmp_path, values), "now")
        return str(raised.value)

    signed = {"principals": "none", "sign_key_file": str(tmp_path / "none.pem")}
    assert refused(changed("take", signed)).startswith("take.sign_key_file: ")
    hashed = {"unsigned": True, "principals_key_file": str(tmp_path / "none")}
    assert refused(changed("take", hashed)).startswith("take.principals_key_file: ")
    private = tmp_path / "private.pem"
    private.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert refused(changed("audit", {"keys": [str(private)]})).startswith("take.keys: ")
    assert refused({**changed("audit", {"keys": [str(private)]}), "take": None, "keep": {}}).startswith("audit.keys: ")
    assert refused(changed("audit.jobs", ["all"])).startswith("audit.jobs: there is no audit 'all'")
    assert refused(changed("brokers.0.url", "sterna://x")).startswith("connect: ca was given for a URL without TLS")


@pytest.mark.parametrize(
    ("text", "said"), [("{", "Invalid JSON"), ("[]", "Input should be an object"), ("x" * (1 << 20 | 1), "more than")]
)
def test_what_is_no_such_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, text)
    with pytest.raises(ConfigError, match="No such file"):
        config.read(tmp_path / "none.json")
    for name in ("a/b", "12:30", "2026-11-24T00:00:00", "x" * 101, "", ".hidden"):
        with pytest.raises(ConfigError, match="is no name"):
            config.check_run(name)


def test_a_scheduled_time_is_the_name_of_a_run() -> None:
    assert config.check_run("2026-11-24T00:30:00Z") == "20261124T0030Z"
    assert config.check_run("2026-11-24T01:30:00+01:00") == "20261124T0030Z"
    assert config.check_run("20261124T0030Z") == "20261124T0030Z"


def test_nothing_to_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither take nor audit"):
        read(tmp_path, {**WHOLE, "take": None, "audit": None, "keep": {}})
    with pytest.raises(ConfigError, match=r"keep\.snapshots needs take"):
        read(tmp_path, {**WHOLE, "take": None})


def a_result(letters: str, count: int) -> Result:
    """A run with many findings, whose names are made of these letters."""
    chance = random.Random(seed())

    def name() -> str:
        return "".join(chance.choice(letters) for _ in range(chance.randrange(1, 2_000)))

    found = tuple(
        Finding("violated", "critical", "lost", name(), "bank", name(), 5, name(), f"ID:{number}:{name()}", 1)
        for number in range(count)
    )
    audits = tuple(Audited(f"audit-{number}", "", {"violated": count}, found, 1.0) for number in range(12))
    return Result(
        run="r" * 100,
        verdict="violated",
        started_ms=1_790_000_000_000,
        ended_ms=1_790_000_001_000,
        taken=[Taken("b" * 253, "failed", error=name()) for _ in range(count)],
        done=Run(audits),
        report=f"/{'r' * 1_400}",
        error=name(),
        notes=[name() for _ in range(count)],
    )


@pytest.mark.parametrize("letters", ["a", "\x00\x1f", '"\\', "ä€😀", "\ud800\udfff", "\u202e\u2028"])
@pytest.mark.parametrize("count", [0, 1, 60])
def test_a_result_fits_whatever_clients_are_called(letters: str, count: int) -> None:
    data = a_result(letters, count).encoded()
    assert len(data) <= BYTES_MAX
    told = json.loads(data)
    assert (told["verdict"], told["counts"]["violated"]) == ("violated", 12 * count)
    if count:
        assert told["worst"][0]["message"].startswith("ID:0:")
        assert len(told["worst"]) + told["omitted"]["worst"] == min(50, 12 * count)
        assert told["snapshots"], "what failed is said"


def test_a_small_result_is_whole() -> None:
    finding = Finding("violated", "critical", "lost", "why", "bank", "b-0", 5, "orders", "ID:1", 1)
    done = Run((Audited("conservation", "", {"violated": 1, "ok": 4}, (finding,), 1.0),))
    told = json.loads(Result("tonight", "violated", 1, 2, [Taken("b-0", "new", 7)], done, "/r/report.html").encoded())
    assert told == {
        "run": "tonight",
        "verdict": "violated",
        "started_ms": 1,
        "ended_ms": 2,
        "counts": {"violated": 1, "not provable": 0, "in flight": 0, "ok": 4},
        "report": "/r/report.html",
        "snapshots": [{"broker": "b-0", "state": "new", "cut": 7}],
        "audits": [{"name": "conservation", "verdict": "violated", "violated": 1}],
        "worst": [
            {
                "audit": "conservation",
                "verdict": "violated",
                "what": "lost",
                "broker": "b-0",
                "object": "orders",
                "message": "ID:1",
            }
        ],
    }


def test_texts_are_cut_between_letters() -> None:
    assert clipped("short", 5) == "short"
    assert clipped("😀" * 9, 11) == "😀😀…"
    assert clipped("\x00\x00\x00", 12) == "\x00…"


def test_a_run_ends_once_and_one_that_failed_does_not(tmp_path: Path) -> None:
    runs = Runs(str(tmp_path), "messaging/nightly")
    began = runs.begin("tonight")
    assert runs.begin("tonight") == began
    assert runs.result("tonight") is None
    runs.end("tonight", Result("tonight", "failed", began, began, error="no disk").encoded())
    assert runs.result("tonight") is None
    runs.end("tonight", Result("tonight", "ok", began, began).encoded())
    assert runs.result("tonight") == json.loads((tmp_path / "messaging/nightly/tonight/result.json").read_text())
    # What another program has left there is no result.
    (tmp_path / "messaging/nightly/tonight/result.json").write_text("{}")
    assert runs.result("tonight") is None
