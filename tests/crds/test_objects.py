"""What a new object looks like before anybody has seen it, and what `kubectl` shows of it."""

import re
from typing import Any

import pytest
from sterna_resources.audit_status import (
    AuditJobStatus,
    RunningStatus,
    RunStatus,
    SnapshotTaken,
    StoreSnapshotStatus,
    VerdictCounts,
    WorstFinding,
)
from sterna_resources.cluster_status import BrokerStatus, ClusterStatus, Maintenance
from sterna_resources.definitions import CATEGORY, DIGEST_ANNOTATION, NAMES, definitions
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.kubernetes_reference import EXAMPLES
from sterna_resources.reading import read_text
from sterna_resources.status import (
    PENDING,
    Condition,
    DestinationStatus,
    PlacedStatus,
    PlanStatus,
    Status,
    StatusModel,
    UserStatus,
)

from tests.crds.cases import LEAST
from tests.crds.conftest import NAMESPACE, Kinds

_UNSEEN = {"observedGeneration": -1, "conditions": [PENDING.values()]}
_NOW = "2030-01-31T18:00:00Z"
_READY = Condition(
    type="Ready", status="False", reason="Refused", message="no", observed_generation=1, last_transition_time=_NOW
)
_COMMON: dict[str, Any] = {
    "observed_generation": 1,
    "conditions": [_READY],
    "claim": "thing",
    "plan": PlanStatus(generation=1, steps=["make the queue"], omitted=2),
}
_RUN = RunStatus(
    run="thing-29000000",
    scheduled_at=_NOW,
    started_at=_NOW,
    ended_at=_NOW,
    verdict="violated",
    counts=VerdictCounts(ok=1, in_flight=2, not_provable=3, violated=4),
    worst=[WorstFinding(audit="conservation", what="lost", object="orders", message="ID:1")],
    snapshots=[SnapshotTaken(broker="prod-broker-0", cut=12, state="failed", error="not there")],
    report="s3://audits/report.html",
    error="why",
)
_RUNNING = RunningStatus(run="thing-29000001", started_at=_NOW, message="ImagePullBackOff")
# A status of each kind with every field filled in.
FULL: dict[type[Status], Status] = {
    Status: Status(**_COMMON),
    PlacedStatus: PlacedStatus(**_COMMON, home="prod-broker-0"),
    DestinationStatus: DestinationStatus(**_COMMON, home="prod-broker-0", messages=7),
    AuditJobStatus: AuditJobStatus(
        **_COMMON, next_run_at=_NOW, held="brokers are restarted", running=_RUNNING, last_run=_RUN, last_verdict=_RUN
    ),
    StoreSnapshotStatus: StoreSnapshotStatus(**_COMMON, running=_RUNNING, taken=_RUN),
    UserStatus: UserStatus(**_COMMON, credentials=2, overlap_until=_NOW, password_version="1"),
    ClusterStatus: ClusterStatus(
        **_COMMON,
        replicas=2,
        ready_brokers=1,
        selector="a=b",
        image="sterna-broker:1",
        managed_by="sterna-system/sterna-operator",
        operator_version="1",
        etcd="managed",
        etcd_image="etcd:1",
        etcd_id="1",
        etcd_revision=1_234,
        url="sternas://prod:7222",
        external_urls=["sternas://b0:7222"],
        connection_secret="prod-connection",
        certificate_not_after="2030-01-31T18:00:00Z",
        maintenance=Maintenance(reason="Scaling", left=1, since=_NOW, leaving=["prod-broker-1"]),
        brokers=[
            BrokerStatus(
                name="prod-broker-0",
                ready=True,
                image="x",
                version="1",
                addresses=["sternas://b0:7222"],
                applied_revision=5,
                destinations=3,
                messages=4,
                draining=True,
                message="not scheduled",
            )
        ],
    ),
}


@pytest.fixture(params=list(LEAST))
def made(kinds: Kinds, request: pytest.FixtureRequest) -> Any:
    """The least object of each kind, kept until the test is over."""
    kind = request.param
    answer = kinds.create(kind, "shown", LEAST[kind], dry_run=False)
    assert answer.ok, answer.message
    yield kind
    kinds.delete(kind, "shown")


def test_a_new_object_shows_as_not_looked_at_yet(kinds: Kinds, made: str) -> None:
    found = kinds.get(made, "shown").body
    assert found["metadata"]["generation"] == 1
    assert found["status"] == _UNSEEN
    ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("Unknown", "Pending", -1)
    assert ready["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_whoever_makes_an_object_cannot_say_that_it_is_ready(kinds: Kinds) -> None:
    status = {"observedGeneration": 1, "conditions": [_READY.values()]}
    answer = kinds.create("Queue", "eager", LEAST["Queue"], status=status)
    assert answer.body["status"] == _UNSEEN


_UNTIL = {"until": "2030-01-31T18:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "field", "full"),
    [
        *(pytest.param(kind, ("paused",), _UNTIL, id=f"{kind} paused") for kind in LEAST if kind != "StoreSnapshot"),
        pytest.param("MessagingCluster", ("tls", "generated"), {"dnsNames": ["mq.example.com"]}, id="generated"),
    ],
)
def test_a_part_can_lose_its_last_field(kinds: Kinds, kind: str, field: tuple[str, ...], full: dict[str, Any]) -> None:
    """Empty it means something. Field by field server-side apply would leave null, which is refused."""

    def spec(value: dict[str, Any]) -> dict[str, Any]:
        for name in reversed(field):
            value = {name: value}
        least = {key: one for key, one in LEAST[kind].items() if not ("tls" in value and key == "insecure")}
        return {**least, **value}

    try:
        for value in (full, {}, full):
            answer = kinds.apply(kind, "emptied", spec(value))
            assert answer.ok, answer.message
            found = answer.body["spec"]
            for name in field:
                found = found[name]
            assert {key: found[key] for key in value} == value
            assert value or "until" not in found
    finally:
        kinds.delete(kind, "emptied")


def test_the_statuses_here_have_every_field() -> None:
    statuses: list[StatusModel] = [*FULL.values(), _READY, *FULL[ClusterStatus].brokers]  # type: ignore[attr-defined]
    assert {type(status): set(type(status).model_fields) - status.model_fields_set for status in statuses} == {
        type(status): set() for status in statuses
    }


def test_the_whole_status_is_kept(kinds: Kinds, made: str) -> None:
    status = FULL[KUBERNETES_KINDS[made].STATUS].values()
    answer = kinds.write_status(made, "shown", status)
    assert answer.ok, answer.message
    found = kinds.get(made, "shown").body
    assert found["status"] == status
    assert found["metadata"]["generation"] == 1
    assert KUBERNETES_KINDS[made].STATUS.model_validate(found["status"]).values() == status


def test_a_status_of_a_newer_operator_can_be_read() -> None:
    assert Status.model_validate({"observedGeneration": 3, "invention": 1}).observed_generation == 3


def test_columns_answer_whether_it_is_well(kinds: Kinds, made: str) -> None:
    kinds.write_status(made, "shown", FULL[KUBERNETES_KINDS[made].STATUS].values())
    head, row = kinds.server.kubectl("-n", NAMESPACE, "get", NAMES[made].plural, "-o", "wide").stdout.splitlines()
    columns = re.findall(r"\S+ *", head)
    begins = [sum(map(len, columns[:number])) for number in range(len(columns) + 1)]
    shown = {name.strip(): row[begins[at] : begins[at + 1]].strip() for at, name in enumerate(columns)}
    assert {"NAME", "READY", "REASON", "AGE", "MESSAGE"} <= shown.keys()
    assert (shown["READY"], shown["REASON"]) == ("False", "Refused")
    expected = {
        "CLUSTER": "prod",
        "HOME": "prod-broker-0",
        "BROKERS": "1",
        "SERVING": "1",
        "QUEUE": "thing",
        "USER": "thing",
        "VERDICT": "violated",
        "SCHEDULE": "0 3 * * *",
    }
    for column in expected.keys() & shown.keys():
        assert shown[column] == expected[column]


def test_objects_can_be_selected_by_their_cluster(kinds: Kinds, made: str) -> None:
    if made == "MessagingCluster":
        return
    for cluster, expected in (("prod", f"{made.lower()}.sterna.dev/shown"), ("other", "")):
        selector = f"--field-selector=spec.clusterRef.name={cluster}"
        found = kinds.server.kubectl("-n", NAMESPACE, "get", NAMES[made].plural, selector, "-o", "name")
        assert found.stdout.strip() == expected, found.stderr


def test_short_names_and_category(kinds: Kinds, made: str) -> None:
    for word in (*NAMES[made].short, CATEGORY, made.lower()):
        found = kinds.server.kubectl("-n", NAMESPACE, "get", word, "-o", "name")
        assert f"{made.lower()}.sterna.dev/shown" in found.stdout.split(), (word, found.stderr)


def test_no_name_is_taken_twice() -> None:
    plurals = [names.plural for names in NAMES.values()]
    shorts = [short for names in NAMES.values() for short in names.short]
    assert len(set(plurals) | set(shorts)) == len(plurals) + len(shorts)
    assert NAMES.keys() == KUBERNETES_KINDS.keys()


def test_a_definition_tells_which_one_it_is(kinds: Kinds) -> None:
    for definition in definitions().values():
        name = definition["metadata"]["name"]
        found = kinds.server.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").body
        digest = definition["metadata"]["annotations"][DIGEST_ANNOTATION]
        assert found["metadata"]["annotations"][DIGEST_ANNOTATION] == digest


def test_a_cluster_can_be_scaled(kinds: Kinds) -> None:
    kinds.create("MessagingCluster", "scaled", LEAST["MessagingCluster"], dry_run=False)
    try:
        outcome = kinds.server.kubectl("-n", NAMESPACE, "scale", "messagingcluster/scaled", "--replicas=3")
        assert outcome.returncode == 0, outcome.stderr
        assert kinds.get("MessagingCluster", "scaled").body["spec"]["brokers"] == 3
    finally:
        kinds.delete("MessagingCluster", "scaled")


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_the_examples_of_the_reference_work(kinds: Kinds, kind: str) -> None:
    [manifest] = read_text(EXAMPLES[kind], kind, KUBERNETES_KINDS)
    answer = kinds.create(kind, manifest.resource.metadata.name, manifest.resource.document()["spec"])
    assert answer.ok, answer.message
    assert manifest.resource.kind == kind


def test_what_kubectl_explains_is_written_down(kinds: Kinds) -> None:
    outcome = kinds.server.kubectl("explain", "queue.spec.deletionPolicy")
    assert "onlyIfEmpty" in outcome.stdout, outcome.stderr
