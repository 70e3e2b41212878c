"""Drift: what changed between cuts, and what is in force otherwise than manifests say, each at object and field."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sterna_audit import main as command
from sterna_audit.audits import declared, registry, running
from sterna_audit.audits.declared import Declared
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import History, open_history
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory
from sterna_resources.problems import ManifestError
from typer.testing import CliRunner

from tests.audit import lives
from tests.audit.faulted import Life, configured
from tests.audit.kept import VERIFIER
from tests.audit.lives import CUTS
from tests.running import manifest

Objects = dict[tuple[str, str], Any]

MANIFESTS = (
    manifest("Queue", "small", "maxMessages: 20, overflowPolicy: discardOld, clusterRef: {name: bank}"),
    manifest("Topic", "all-prices", "name: prices.>, maxMessages: 5"),
    manifest("Bridge", "sport", "source: {topic: news.sport}, targets: [{queue: mirror}, {topic: prices.gold}]"),
    manifest("DurableSubscription", "book", "topic: news.>, clientId: desk"),
    manifest("Store", "fast", "mode: async"),
)
BRIDGE = {"source": {"topic": "news.sport"}, "targets": [{"queue": "mirror"}, {"topic": "prices.gold"}]}
#: The same as a broker by itself tells it: by the names of manifests, as they are written.
IN_FORCE: Objects = {
    ("Queue", "small"): {"maxMessages": 20, "overflowPolicy": "discardOld", "clusterRef": {"name": "bank"}},
    ("Topic", "all-prices"): {"name": "prices.>", "maxMessages": 5},
    ("Bridge", "sport"): BRIDGE,
    ("DurableSubscription", "book"): {"topic": "news.>", "clientId": "desk"},
    ("Store", "fast"): {"mode": "async"},
}
#: The same as a broker of a cluster tells it: by what objects claim; in part with defaults, and in another order.
IN_CLUSTER: Objects = {
    ("Queue", "small"): {"maxMessages": 20, "overflowPolicy": "discardOld"},
    ("Topic", "prices.>"): {"name": "prices.>", "maxMessages": 5},
    ("Bridge", "sport"): {
        "source": {"topic": "news.sport"},
        "targets": [{"topic": "prices.gold", "selector": ""}, {"queue": "mirror"}],
    },
    ("DurableSubscription", "desk/book"): {"topic": "news.>", "clientId": "desk", "noLocal": False},
    ("Store", "fast"): {"mode": "async", "quotaBytes": 0},
}


def otherwise(**changes: Any) -> Objects:
    """What is in force, with objects exchanged by their names; None: it is not there."""
    found = {key: changes.pop(key[1], spec) for key, spec in IN_FORCE.items()}
    assert not changes
    return {key: spec for key, spec in found.items() if spec is not None}


SMALL: dict[str, Any] = IN_FORCE["Queue", "small"]
SELECTIVE = {**BRIDGE, "targets": [{"queue": "mirror", "selector": "JMSPriority > 4"}, {"topic": "prices.gold"}]}
#: By broker what is in force at its last cut, and what is to be said of it: verdict, kind, object and fields.
CASES: dict[str, tuple[Objects, set[tuple[str, str, str, tuple[str, ...]]]]] = {
    "same": (IN_FORCE, set()),
    "in-cluster": (IN_CLUSTER, set()),
    "without": (otherwise(small=None), {("violated", "missing", "Queue small", ())}),
    "otherwise": (
        otherwise(small={**SMALL, "maxMessages": 30, "prefetch": "none"}, sport=SELECTIVE),
        {
            ("violated", "different", "Queue small", ("maxMessages", "prefetch")),
            ("violated", "different", "Bridge sport", ("targets[queue mirror].selector",)),
        },
    ),
    "silent": (
        otherwise(small={"clusterRef": {"name": "bank"}}),
        {("violated", "different", "Queue small", ("maxMessages", "overflowPolicy"))},
    ),
    "more": ({**IN_FORCE, ("Queue", "stray"): {}}, {("ok", "extra", "Queue stray", ())}),
    "renamed": (
        otherwise(book={"topic": "news.>", "clientId": "other"}),
        {
            ("violated", "missing", "DurableSubscription desk/book", ()),
            ("ok", "extra", "DurableSubscription other/book", ()),
        },
    ),
    "newer": (
        otherwise(small={**SMALL, "colour": "red"}),
        {("violated", "different", "Queue small", ("colour",))},
    ),
    "foreign": (
        otherwise(fast={"mode": "never"}),
        {("not provable", "unread", "Store fast", ())},
    ),
    "bare": ({}, {("not provable", "no-configuration", "", ())}),
}


@pytest.fixture(scope="module")
def life(life: lives.Life, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A real history, of which each broker is a copy with another configuration."""
    copy = life.copied(tmp_path_factory.mktemp("drift") / "snapshots")
    return Life(copy.root, copy.place)


def history(spark: SparkSession, life: Life, brokers: Mapping[str, Place]) -> History:
    return open_history(spark, Directory(life.root), VERIFIER, places=sorted(brokers.values()))


def said(of: History, out: Path) -> dict[str, list[Finding]]:
    """What the audit says of each broker."""
    [audit] = registry.audits(["drift"])
    [result] = running.run(of, [audit], Directory(out)).results
    assert result.error == "", result.error
    found: dict[str, list[Finding]] = {}
    for one in result.findings:
        assert one.what in audit.meanings
        found.setdefault(one.broker, []).append(one)
    return found


def fields(finding: Finding) -> tuple[str, ...]:
    return tuple(one["field"] for one in finding.evidence.get("fields", ()))


def folder(tmp_path: Path, *manifests: str) -> Path:
    """Manifests, one a file."""
    path = tmp_path / "manifests"
    path.mkdir()
    for number, text in enumerate(manifests):
        (path / f"{number}.yaml").write_text(text)
    return path


def test_what_manifests_say_otherwise_is_found_at_object_and_field(
    spark: SparkSession, life: Life, tmp_path: Path
) -> None:
    for broker, (objects, _) in CASES.items():
        life.plant(broker, manifests=objects)
    brokers = {broker: life.made[broker] for broker in CASES}
    of = history(spark, life, brokers)
    others = (
        manifest("User", "ann", "passwordSecret: {name: ann}"),
        manifest("Queue", "theirs", "clusterRef: {name: insurance, namespace: other}"),
        "apiVersion: v1\nkind: Secret\nmetadata: {name: ann}\n",
    )
    of.manifests = declared.read(folder(tmp_path, *MANIFESTS, *others))
    assert of.manifests.foreign == 1
    found = said(of, tmp_path / "out")
    for broker, (objects, expected) in CASES.items():
        told = {(one.verdict, one.what, one.object, fields(one)) for one in found[broker]}
        usual = {("ok", "as-declared", "", ()), ("ok", "compared", "", ())}
        assert told - usual == expected, broker
        assert (usual <= told) == bool(objects), broker
        for one in found[broker]:
            if one.what in ("missing", "different"):
                assert "/manifests/" in one.evidence["file"], one
                assert one.cut == CUTS
    [different] = [one for one in found["otherwise"] if one.object == "Queue small"]
    assert different.why == 'maxMessages is 30, not 20; prefetch is "none", not nothing'
    assert different.evidence["fields"][0] == {"field": "maxMessages", "manifest": "20", "in_force": "30"}
    assert different.evidence["file"].endswith("manifests/0.yaml:1:1")
    [declared_] = [one for one in found["without"] if one.what == "as-declared"]
    assert declared_.why.startswith("4 objects are in force as ")
    # What is of no broker here is said, and not taken for right.
    elsewhere = {(one.verdict, one.what, one.object) for one in found[""]}
    assert elsewhere == {("not provable", "untold", "User ann"), ("not provable", "elsewhere", "Queue theirs")}


def test_what_changed_between_cuts_is_a_figure_and_a_warning(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    def at(objects: Objects, revision: int = 1) -> Any:
        return configured(objects, revision)

    kept = {("Store", "fast"): {"mode": "async"}}
    sport = {("Bridge", "sport"): BRIDGE}
    life.plant(
        "changing",
        {
            "1:state/configuration": at({**kept, ("Queue", "small"): {"maxMessages": 20, "prefetch": 5}}),
            "2:state/configuration": lambda rows: [
                *at(kept)(rows),
                *at({("Queue", "small"): {"maxMessages": 30, "exclusive": True}, **sport}, 2)([]),
            ],
            "3:state/configuration": lambda rows: [
                *at(kept, 4)(rows),
                *at({("Queue", "small"): {"maxMessages": 40}}, 2)([]),
            ],
        },
    )
    small: Objects = {("Queue", "small"): {"maxMessages": 20}}
    life.plant("restored", {"2:state/configuration": at(small, 9), "3:state/configuration": at(small, 8)})
    found = said(history(spark, life, {name: life.made[name] for name in ("changing", "restored")}), tmp_path / "out")
    told = {(one.cut, one.what, one.object, one.severity, fields(one)) for one in found["changing"]}
    assert told == {
        (2, "added", "Bridge sport", "warning", ()),
        (2, "changed", "Queue small", "warning", ("exclusive", "maxMessages", "prefetch")),
        (2, "compared", "", "info", ()),
        (3, "removed", "Bridge sport", "warning", ()),
        (3, "rewritten", "Store fast", "info", ()),
        (3, "same-revision", "Queue small", "warning", ("exclusive", "maxMessages")),
        (3, "compared", "", "info", ()),
        (3, "no-manifests", "", "info", ()),
    }
    [changed] = [one for one in found["changing"] if one.what == "changed"]
    assert (
        changed.why == "exclusive was nothing and is true; maxMessages was 20 and is 30; prefetch was 5 and is nothing"
    )
    assert (changed.evidence["revision_before"], changed.evidence["revision_after"]) == (1, 2)
    [third] = [one for one in found["changing"] if one.what == "compared" and one.cut == 3]
    assert (third.evidence["objects"], third.evidence["changed"]) == (2, 3)
    assert ("older-revision", "Queue small") in {(one.what, one.object) for one in found["restored"]}
    # To change a configuration is nobody's fault.
    assert not [one for name in found for one in found[name] if one.verdict == "violated"]


@pytest.mark.parametrize(
    ("clusters", "place", "concerned"),
    [
        ("", Place("standalone", "one"), True),
        ("name: bank", Place("bank", "one"), True),
        ("name: bank", Place("money.bank", "one"), True),
        ("name: bank", Place("riverbank", "one"), False),
        ("name: bank, namespace: money", Place("money.bank", "one"), True),
        ("name: bank, namespace: other", Place("money.bank", "one"), False),
        ("name: shop, namespace: other", Place("kept-as", "one"), True),
    ],
)
def test_a_manifest_is_for_the_brokers_of_its_cluster(
    tmp_path: Path, clusters: str, place: Place, *, concerned: bool
) -> None:
    shop = "apiVersion: sterna.dev/v1alpha1\nkind: MessagingCluster\nmetadata: {name: shop, namespace: other}\n"
    shop += "spec: {insecure: true, etcd: {clusterName: kept-as, endpoints: ['http://etcd:2379']}}\n"
    reference = f"clusterRef: {{{clusters}}}" if clusters else ""
    found = declared.read(folder(tmp_path, shop, manifest("Queue", "orders", reference)))
    assert [one.kind for one in found.of(place)] == (["Queue"] if concerned else [])


def test_a_broker_is_the_one_of_its_name(tmp_path: Path) -> None:
    found = declared.read(folder(tmp_path, manifest("Broker", "one", "drainMs: 5000")))
    assert [one.name for one in found.of(Place("standalone", "one"))] == ["one"]
    assert not list(found.of(Place("standalone", "two")))
    assert not list(found.of(Place("bank", "one")))
    [broker] = found.manifests
    assert isinstance(broker, Declared)
    assert [(one.field, one.manifest, one.in_force) for one in broker.differences('{"drainMs":6000}')] == [
        ("drainMs", "5000", "6000")
    ]
    assert broker.differences('{"drainMs":5000,"metricsDestinations":100}') == []


QUEUE = manifest("Queue", "orders", "maxMessages: 3")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ((QUEUE, manifest("Queue", "bills", "maxMesages: 3")), "1.yaml:4:8: spec.maxMesages: unknown field"),
        ((manifest("Queue", "bills", "maxMessages: many"),), "0.yaml:4:8: spec.maxMessages: must be a whole number"),
        ((QUEUE.replace("v1alpha1", "v2"),), "0.yaml:1:1: apiVersion: is 'sterna.dev/v2'"),
        ((QUEUE.replace("sterna.dev", "stern.dev"),), "0.yaml:1:1: apiVersion: is 'stern.dev/v1alpha1'"),
        (("apiVersion: v1\nkind: List\nitems: []\n",), "0.yaml:1:1: apiVersion: is 'v1'"),
        (("kind: [",), "0.yaml:1:8: not valid YAML"),
        ((QUEUE, QUEUE), "1.yaml:3:12: metadata.name: Queue orders is described in "),
        (("apiVersion: v1\nkind: Secret\n",), "manifests:1:1: holds no manifests of Sterna"),
        ((), "manifests:1:1: holds no manifests: their files end in .yaml"),
    ],
)
def test_broken_manifests_are_an_error_that_names_file_and_field(
    tmp_path: Path, texts: tuple[str, ...], why: str
) -> None:
    path = folder(tmp_path, *texts)
    with pytest.raises(ManifestError) as raised:
        declared.read(path)
    assert why in str(raised.value)
    # Before Spark is started, or anything is read.
    run = ["run", "--snapshots", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"), "--unsigned"]
    result = CliRunner().invoke(command.app, [*run, "--manifests", str(path)])
    assert (result.exit_code, why in result.output, "Traceback" in result.output) == (command.Exit.USAGE, True, False)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"gone\.yaml:1:1: cannot be read: No such file"):
        declared.read(tmp_path / "gone.yaml")


def test_long_values_are_compared_whole_and_shown_in_part(tmp_path: Path) -> None:
    long = "x" * 300
    spec = f"source: {{queue: a}}, targets: [{{queue: b, selector: \"c = '{long}'\"}}]"
    [bridge] = declared.read(folder(tmp_path, manifest("Bridge", "long", spec))).manifests
    target = {"queue": "b", "selector": f"c = '{long}y'"}
    [difference] = bridge.differences(json.dumps({"source": {"queue": "a"}, "targets": [target]}))
    assert difference.field == "targets[queue b].selector"
    assert len(difference.values()["manifest"]) == len(difference.values()["in_force"]) == 200
