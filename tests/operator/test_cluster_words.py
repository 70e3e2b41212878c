"""What keeps a broker from serving stands in the cluster's status: per broker, in Ready's message, and in an event."""

import time
from dataclasses import replace
from typing import Any

import pytest
from sterna_operator.kinds import pod_words
from sterna_operator.kube import path
from sterna_operator.reasons import Reason

from tests.operator.cluster_world import World as PlanWorld
from tests.operator.cluster_world import settled
from tests.operator.conftest import MakeOperator
from tests.operator.pairs import pair
from tests.operator.worlds import World
from tests.waiting import eventually

NOW_MS = 1_800_000_000_000
REFUSED = (
    'create Pod mq-broker-0 in StatefulSet mq-broker failed error: pods "mq-broker-0" is forbidden: exceeded quota: '
    "small, requested: pods=1, used: pods=0, limited: pods=0"
)


def test_a_pod_that_does_not_end_is_named_and_one_that_has_its_time_is_not() -> None:
    world = settled({"brokers": 2})
    world.change_pod("orders-broker-1", is_going=True, is_ready=False, going_since_ms=NOW_MS)
    world.observed = replace(world.observed, now_ms=NOW_MS + 5_000)
    plan = world.decide()
    assert plan.status is not None
    assert plan.status.conditions[0].message == "1 of 2 brokers serve"
    world.observed = replace(world.observed, now_ms=NOW_MS + 60_000)
    plan = world.decide()
    assert plan.status is not None
    assert "1 of 2 brokers serve; orders-broker-1: Terminating, and was to have ended at 2027-01-15T08:00:00Z" in (
        plan.status.conditions[0].message
    )
    assert plan.status.fields["brokers"][1]["message"].startswith("Terminating")
    [said] = [one for one in plan.announcements if one.reason is Reason.NotServing]
    assert said.message.startswith("orders-broker-1 does not serve: Terminating")


def test_why_a_broker_says_that_it_is_not_ready_stands_with_it() -> None:
    world = settled({"brokers": 2})
    full = "the disk is full: messages can be consumed, not sent"
    statuses = dict(world.observed.members.statuses)
    statuses["orders-broker-1"] = statuses["orders-broker-1"].model_copy(update={"reasons": [full]})
    world.change_members(statuses=statuses)
    world.change_pod("orders-broker-1", is_ready=False)
    plan = world.decide()
    assert plan.status is not None
    assert plan.status.conditions[0].message == f"1 of 2 brokers serve; orders-broker-1: {full}"
    assert plan.status.fields["brokers"][1]["message"] == full
    assert [one.message for one in plan.announcements if one.reason is Reason.NotServing] == [
        f"orders-broker-1 does not serve: {full}"
    ]
    former = statuses["orders-broker-1"].model_copy(update={"incarnation": "one before"})
    world.change_members(statuses={**statuses, "orders-broker-1": former})
    plan = world.decide()
    assert plan.status is not None
    assert plan.status.conditions[0].message == "1 of 2 brokers serve", "what a former start has said is over"


def test_a_broker_that_serves_says_nothing_of_the_kind() -> None:
    world = settled({"brokers": 2})
    plan = world.decide()
    assert plan.status is not None
    assert all("message" not in one for one in plan.status.fields["brokers"])
    assert not any(one.reason is Reason.NotServing for one in plan.announcements)


def test_what_the_kubelet_says_stands_with_the_broker_while_others_are_rolled() -> None:
    world = settled({"brokers": 3})
    world.edit({"brokers": 3, "image": "localhost/broken:1"})
    world.reconcile()
    world.change_pod("orders-broker-2", is_ready=False, fault="ErrImagePull: no such image")
    plan = world.decide()
    assert plan.status is not None
    assert plan.status.conditions[0].reason == "Rolling"
    assert "orders-broker-2: ErrImagePull: no such image" in plan.status.conditions[0].message
    assert plan.status.fields["brokers"][2]["message"] == "ErrImagePull: no such image"


# Certificates

TLS = {"brokers": 2, "insecure": False, "tls": {"secretName": "server"}}


def secured(data: dict[str, bytes]) -> PlanWorld:
    """A settled cluster that shows the certificate of `pair`, whose Secret has these data by now."""
    world = PlanWorld(TLS)
    world.observed = replace(world.observed, secrets={"server": pair()}, now_ms=int(time.time() * 1000))
    world.settle()
    world.restarted.clear()
    world.observed = replace(world.observed, secrets={"server": data})
    return world


OTHER = pair("two")
BROKEN = [
    pytest.param({**pair(), "tls.crt": b"no certificate"}, "tls.crt is no certificate", id="certificate"),
    pytest.param({**pair(), "tls.key": b"no key"}, "tls.key is no key", id="key"),
    pytest.param({**pair(), "tls.key": OTHER["tls.key"]}, "tls.key is not the key of tls.crt", id="another's key"),
    pytest.param({"tls.crt": pair()["tls.crt"]}, "Secret server has no tls.key", id="lacking key"),
]


@pytest.mark.parametrize(("data", "words"), BROKEN)
def test_nothing_is_restarted_into_a_certificate_that_is_broken(data: dict[str, bytes], words: str) -> None:
    world = secured(data)
    world.edit({**TLS, "image": "localhost/broker:2"})
    for _ in range(3):
        world.reconcile()
    assert world.restarted == []
    assert world.condition() == ("True", "CertificateInvalid"), "brokers go on with what they have read"
    assert world.condition("Stalled") == ("True", "CertificateInvalid")
    assert world.condition("CertificateValid") == ("False", "Broken")
    assert words in world.message()
    assert Reason.CertificateInvalid in [one.reason for one in world.last.announcements]
    world.observed = replace(world.observed, secrets={"server": OTHER})
    world.settle()
    assert world.restarted == ["orders-broker-1", "orders-broker-0"]
    assert world.condition("CertificateValid") == ("True", "Valid")


def test_an_authority_for_clients_that_is_broken_counts_as_well() -> None:
    spec = {**TLS, "tls": {"secretName": "server", "clientCa": {"name": "clients"}}}
    world = PlanWorld(spec)
    secrets = {"server": pair(), "clients": {"ca.crt": b"nothing"}}
    world.observed = replace(world.observed, secrets=secrets, now_ms=int(time.time() * 1000))
    world.settle()
    assert "Secret clients: ca.crt is no certificate" in world.message()


@pytest.mark.parametrize(
    ("days", "ready", "valid", "words"),
    [
        pytest.param(100, ("True", "Serving"), ("True", "Valid"), "", id="long"),
        pytest.param(5, ("True", "Serving"), ("True", "ExpiresSoon"), "the certificate ends at", id="soon"),
        pytest.param(-1, ("False", "CertificateInvalid"), ("False", "Expired"), "clients refuse it", id="over"),
    ],
)
def test_the_end_of_a_certificate_is_told(
    days: int, ready: tuple[str, str], valid: tuple[str, str], words: str
) -> None:
    world = secured(pair("one", days))
    world.settle()
    world.reconcile()
    assert world.condition() == ready
    assert world.condition("CertificateValid") == valid
    assert words in world.message()
    assert world.desired.status["certificateNotAfter"] == world.last.status.fields["certificateNotAfter"]  # type: ignore[union-attr]


@pytest.mark.slow_callbacks(30_000)
async def test_a_certificates_end_is_a_figure_and_its_faults_stand_in_the_status(
    world: World, operator: MakeOperator
) -> None:
    world.certificate("server", pair())
    world.make_cluster(insecure=False, tls={"secretName": "server"})
    running = operator(only_etcd=False, broker_image="localhost/broker:0")
    await world.reason("MessagingCluster", "mq", "Starting")
    figure = f'sterna_operator_certificate_not_after_seconds{{cluster="mq",namespace="{world.namespace}"}}'
    await eventually(lambda: world.metrics(running.address).get(figure, 0.0) > time.time(), timeout_s=30.0)
    valid = world.condition("MessagingCluster", "mq", "CertificateValid")
    assert valid["reason"] == "Valid"
    figures = world.metrics(running.address)
    days = figures[f'sterna_operator_certificate_days_left{{cluster="mq",namespace="{world.namespace}"}}']
    assert valid["message"].endswith(f": {days:.0f} days left")
    assert 0 <= (figures[figure] - time.time()) / 86_400 - days < 1.01
    assert figures[f'sterna_operator_cluster_ready{{cluster="mq",namespace="{world.namespace}"}}'] == 0.0
    assert figures[f'sterna_operator_cluster_brokers{{cluster="mq",namespace="{world.namespace}"}}'] == 1.0
    world.certificate("server", {**pair(), "tls.crt": b"broken"})
    text = await world.reason("MessagingCluster", "mq", "CertificateInvalid")
    assert "Secret server: tls.crt is no certificate" in text
    await eventually(lambda: "CertificateInvalid" in world.events("mq"), timeout_s=30.0)
    world.certificate("server", pair("two"))
    await world.reason("MessagingCluster", "mq", "Starting")


# Pods that are not made


@pytest.mark.slow_callbacks(30_000)
async def test_pods_that_kubernetes_lets_not_be_made_are_named(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator(only_etcd=False, broker_image="localhost/broker:0", clusters_s=0.3)
    where = path("apps/v1", "StatefulSet", world.namespace, "mq-broker")
    await eventually(lambda: world.server.request("GET", where).ok, timeout_s=30.0)
    for uid, text in (
        ("of-one-before", "create Pod mq-broker-0 in StatefulSet mq-broker failed error: something of before"),
        (world.server.request("GET", where).body["metadata"]["uid"], REFUSED),
    ):
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "mq-broker", "namespace": world.namespace}
        event = {
            "metadata": {"name": f"mq-broker.{uid}"},
            "involvedObject": {**owner, "uid": uid},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": text,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        answer = world.server.request("POST", path("v1", "Event", world.namespace), event)
        assert answer.ok, answer.message

    def said() -> str:
        return str(world.condition("MessagingCluster", "mq").get("message"))

    await eventually(lambda: "exceeded quota" in said(), timeout_s=30.0)
    assert said() == f"0 of 1 brokers serve; mq-broker-0: FailedCreate: {REFUSED}"
    cluster = world.get("MessagingCluster", "mq")
    assert cluster is not None
    assert cluster["status"]["brokers"] == [
        {"draining": False, "message": f"FailedCreate: {REFUSED}", "name": "mq-broker-0", "ready": False}
    ]
    await eventually(lambda: "NotServing" in world.events("mq"), timeout_s=30.0)


# What a broker said before it ended

_BROKEN_SETTINGS = """\
{"part": "broker", "event": "starting", "level": "info"}
sterna broker: the configuration cannot be used:
/etc/sterna/settings/broker.yaml:5:3: spec.log.segmentBytes: should be at least 1048576
"""
_TRACEBACK = 'Traceback (most recent call last):\n  File "main.py", line 1\nRuntimeError: the log is not ours\n'
_JSON_LOG = '{"event": "kept", "level": "info"}\n{"event": "certificate_broken", "error": "no\\nkey", "level": "error"}'
_BACKOFF = "back-off 5m0s restarting failed container=broker pod=orders-broker-1_default(...)"


def _pod_status(state: dict[str, Any], last: dict[str, Any] | None = None, *, ready: bool = False) -> dict[str, Any]:
    container = {"name": "broker", "state": state, "lastState": {} if last is None else {"terminated": last}}
    return {"containerStatuses": [{**container, "ready": ready}]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            _BROKEN_SETTINGS,
            "the configuration cannot be used: /etc/sterna/settings/broker.yaml:5:3: spec.log.segmentBytes: should be "
            "at least 1048576",
            id="its own words",
        ),
        pytest.param(_TRACEBACK, "RuntimeError: the log is not ours", id="a traceback"),
        pytest.param(_JSON_LOG, "certificate_broken: no key", id="a log"),
        pytest.param("[1]", "[1]", id="no record"),
        pytest.param("", "", id="nothing"),
        pytest.param("x" * 5_000, "x" * 500 + "…", id="too much"),
    ],
)
def test_the_last_words_of_a_broker_are_found_in_what_it_wrote(text: str, words: str) -> None:
    assert pod_words.last_words(text) == words


def test_the_kubelet_keeps_what_a_broker_wrote_last() -> None:
    template = settled({"brokers": 1}).child("StatefulSet", "orders-broker")["spec"]["template"]
    assert template["spec"]["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


_ENDED = {"exitCode": 2, "reason": "Error", "message": _BROKEN_SETTINGS}


@pytest.mark.parametrize(
    ("status", "fault", "ended"),
    [
        pytest.param(
            _pod_status({"waiting": {"reason": "CrashLoopBackOff", "message": _BACKOFF}}, _ENDED),
            "CrashLoopBackOff: ended with status 2: the configuration cannot be used: ",
            "is being started anew: ended with status 2: the configuration cannot be used: ",
            id="the kubelet waits",
        ),
        pytest.param(
            _pod_status({"terminated": _ENDED}),
            "ended with status 2: the configuration cannot be used: ",
            None,
            id="it has just ended",
        ),
        pytest.param(
            _pod_status({"running": {}}, _ENDED),
            None,
            "is being started anew: ended with status 2: the configuration cannot be used: ",
            id="it is started again",
        ),
        pytest.param(_pod_status({"running": {}}, _ENDED, ready=True), None, None, id="it has come up"),
        pytest.param(
            _pod_status({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "OOMKilled, ended with status 137",
            None,
            id="too little memory",
        ),
        pytest.param(
            _pod_status({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}),
            "ErrImagePull: no such image",
            None,
            id="it never ran",
        ),
        pytest.param(_pod_status({"waiting": {"reason": "ContainerCreating"}}), None, None, id="it is on its way"),
    ],
)
def test_how_a_pod_ended_is_read_from_its_status(status: dict[str, Any], fault: str | None, ended: str | None) -> None:
    for said, wanted in ((pod_words.fault(status), fault), (pod_words.ended(status), ended)):
        assert (said is None) == (wanted is None)
        assert said is None or said.startswith(wanted or "")
        assert said is None or "back-off" not in said


def test_the_last_words_of_a_broker_stand_in_the_status_and_in_an_event() -> None:
    world = settled({"brokers": 2})
    words = "CrashLoopBackOff: ended with status 2: the configuration cannot be used: broker.yaml:5:3: no"
    world.change_pod("orders-broker-1", is_ready=False, fault=words)
    _says(world, words)
    words = "is being started anew: ended with status 2: the configuration cannot be used: broker.yaml:5:3: no"
    world.change_pod("orders-broker-1", fault=None, ended=words)
    _says(world, words)
    world.change_pod("orders-broker-1", is_ready=True)
    world.settle()
    assert words not in world.message()


def _says(world: PlanWorld, words: str) -> None:
    plan = world.decide()
    assert plan.status is not None
    assert plan.status.conditions[0].message == f"1 of 2 brokers serve; orders-broker-1: {words}"
    assert plan.status.fields["brokers"][1]["message"] == words
    [said] = [one.message for one in plan.announcements if one.reason is Reason.NotServing]
    assert said == f"orders-broker-1 does not serve: {words}"
