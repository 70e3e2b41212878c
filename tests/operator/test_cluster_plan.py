"""What the operator decides for a MessagingCluster, against a little world that does what controllers do."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sterna_etcd.records import BrokerStatus, DrainRecord
from sterna_operator.builders import brokers
from sterna_operator.builders.blueprint import SETTINGS_ANNOTATION
from sterna_operator.kinds import cluster_rolling
from sterna_operator.kinds.messaging_cluster import referenced_secrets
from sterna_operator.plans import ApplyObject, RemoveBroker, RemoveDrain, RemoveObject, RepairObject
from sterna_operator.reasons import Reason

from tests.operator.cluster_world import DEFAULTS, OPERATOR_PODS, World, manifest, settled
from tests.operator.pairs import pair

THREE = {"brokers": 3}


def test_a_new_cluster_becomes_ready_and_then_nothing_is_done() -> None:
    world = World(THREE)
    world.settle()
    assert world.condition() == ("True", "Serving")
    assert "one member" in world.message()
    assert set(world.pods) == {"orders-broker-0", "orders-broker-1", "orders-broker-2"}
    assert world.restarted == []
    assert world.desired.status["url"] == "sterna://orders.mq.svc:7222"


def test_the_stateful_set_is_the_last_object_that_is_made() -> None:
    world = World(THREE)
    kinds = [step.manifest["kind"] for step in world.decide().steps if isinstance(step, ApplyObject)]
    assert kinds[-1] == "StatefulSet"
    assert {"Service", "ConfigMap", "Secret", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"} <= set(kinds)


def test_only_brokers_and_the_operator_reach_a_managed_etcd() -> None:
    world = settled(THREE)
    [rule] = world.child("NetworkPolicy", "orders-etcd")["spec"]["ingress"]
    assert rule["from"] == [
        {"podSelector": world.child("StatefulSet", "orders-broker")["spec"]["selector"]},
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": OPERATOR_PODS.namespace}},
            "podSelector": {"matchLabels": OPERATOR_PODS.labels},
        },
    ]


def test_a_changed_image_restarts_one_broker_at_a_time() -> None:
    world = settled(THREE)
    world.edit({**THREE, "image": "localhost/broker:2"})
    world.reconcile()
    assert world.restarted == ["orders-broker-2"]
    # The new pod does not serve yet: nothing else is touched, however often one looks.
    world.change_pod("orders-broker-2", is_ready=False)
    for _ in range(3):
        world.reconcile()
    assert world.restarted == ["orders-broker-2"]
    assert world.condition() == ("False", "Rolling")
    world.change_pod("orders-broker-2", is_ready=True)
    world.settle()
    assert world.restarted == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
    assert {pod.image for pod in world.pods.values()} == {"localhost/broker:2"}


def test_a_ready_pod_that_has_not_registered_does_not_serve_yet() -> None:
    world = settled(THREE)
    world.edit({**THREE, "image": "localhost/broker:2"})
    live = {name: one for name, one in world.observed.members.live.items() if name != "orders-broker-0"}
    world.change_members(live=live)
    removed = [step.name for step in world.decide().steps if isinstance(step, RemoveObject)]
    assert removed == ["orders-broker-0"], "the one that serves nobody goes first, and alone"


def test_a_broker_that_is_cut_off_from_etcd_is_named_and_left_alone() -> None:
    world = settled(THREE)
    live = {name: one for name, one in world.observed.members.live.items() if name != "orders-broker-0"}
    world.change_members(live=live)
    plan = world.decide()
    assert plan.steps == ()
    assert plan.status is not None
    assert "2 of 3 brokers serve; orders-broker-0: it is ready, and not registered" in plan.status.conditions[0].message


def test_a_broken_image_stops_the_rolling_and_a_repaired_one_goes_on() -> None:
    world = settled(THREE)
    world.edit({**THREE, "image": "localhost/broken:1"})
    world.reconcile()
    world.change_pod("orders-broker-2", is_ready=False, fault="ErrImagePull: no such image")
    world.reconcile()
    assert world.restarted == ["orders-broker-2"]
    world.edit({**THREE, "image": "localhost/broker:3"})
    world.settle()
    assert {pod.image for pod in world.pods.values()} == {"localhost/broker:3"}
    assert world.restarted[:2] == ["orders-broker-2", "orders-broker-2"]


def test_an_operator_with_other_defaults_restarts_no_broker() -> None:
    world = settled(THREE)
    newer = replace(DEFAULTS, broker_image="localhost/broker:99", etcd_image="localhost/etcd:99", version="99.0.0")
    world.observed = replace(world.observed, defaults=newer)
    world.settle()
    assert world.restarted == []
    assert {pod.image for pod in world.pods.values()} == {DEFAULTS.broker_image}
    assert world.desired.status["operatorVersion"] == "99.0.0"


def test_the_image_is_kept_when_the_status_is_lost() -> None:
    world = settled(THREE)
    world.observed = replace(world.observed, defaults=replace(DEFAULTS, broker_image="localhost/broker:99"))
    world.desired = replace(world.desired, status={})
    world.settle()
    assert world.restarted == []
    assert world.desired.status["image"] == DEFAULTS.broker_image


def test_a_template_of_a_newer_operator_restarts_nothing_by_itself() -> None:
    world = settled(THREE)
    stateful_set = world.child("StatefulSet", "orders-broker")
    stateful_set["spec"]["template"]["spec"]["enableServiceLinks"] = True
    plan = world.reconcile()
    assert any(isinstance(step, RepairObject) for step in plan.steps), "the template is put right"
    assert world.restarted == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"settings": {"slowConsumerMs": 5_000}}, id="settings"),
        pytest.param({"pod": {"resources": {"limits": {"memory": "3Gi"}}}}, id="resources"),
        pytest.param({"pod": {"nodeSelector": {"disk": "fast"}}}, id="placement"),
    ],
)
def test_what_a_running_broker_cannot_take_up_restarts_it(change: dict[str, object]) -> None:
    world = settled({"brokers": 2})
    world.edit({"brokers": 2, **change})
    world.settle()
    assert world.restarted == ["orders-broker-1", "orders-broker-0"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"brokers": 4}, id="more brokers"),
        pytest.param({"disruptionBudget": {"enabled": False}}, id="no budget"),
        pytest.param({"networkPolicy": {"enabled": False}}, id="no network policy"),
        pytest.param({"deletionPolicy": "delete"}, id="deletion policy"),
        pytest.param({"listeners": [{"name": "out", "type": "nodePort"}]}, id="a listener"),
        pytest.param({"storage": {"size": "20Gi"}}, id="larger volumes"),
    ],
)
def test_what_brokers_take_up_as_they_run_restarts_nothing(change: dict[str, object]) -> None:
    world = settled({"brokers": 2})
    world.edit({"brokers": 2, **change})
    world.settle()
    assert world.restarted == []
    assert world.condition()[0] == "True"


def test_the_restart_annotation_restarts_all_once() -> None:
    world = settled({"brokers": 2})
    world.edit({"brokers": 2}, annotations={"sterna.dev/restart": "2026-01-01"})
    world.settle()
    assert world.restarted == ["orders-broker-1", "orders-broker-0"]
    world.settle()
    assert len(world.restarted) == 2


def test_another_etcd_is_taken_when_somebody_says_so() -> None:
    world = settled({"brokers": 1})
    world.edit({"brokers": 1}, annotations={"sterna.dev/accept-store": "true"})
    world.settle()
    arguments = world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--accept-store" in arguments
    assert world.restarted == ["orders-broker-0"]


def test_scale_down_waits_until_a_broker_is_empty_and_says_what_it_holds() -> None:
    world = settled(THREE)
    world.messages["orders-broker-2"] = 17
    world.edit({"brokers": 1})
    for _ in range(4):
        world.reconcile()
    assert set(world.pods) == {"orders-broker-0", "orders-broker-1", "orders-broker-2"}
    assert world.condition() == ("False", "DrainBlocked")
    assert "17 messages" in world.message()
    assert set(world.observed.members.drains) == {"orders-broker-1", "orders-broker-2"}
    world.messages.clear()
    world.settle()
    assert set(world.pods) == {"orders-broker-0"}
    assert world.observed.members.drains == {}
    assert set(world.observed.members.statuses) == {"orders-broker-0"}
    assert world.condition() == ("True", "Serving")
    assert "data-orders-broker-2" in world.observed.claims, "its volume stays"


def test_scaling_up_again_takes_the_drain_back() -> None:
    world = settled(THREE)
    world.messages["orders-broker-2"] = 1
    world.edit({"brokers": 2})
    world.reconcile()
    world.reconcile()
    assert set(world.observed.members.drains) == {"orders-broker-2"}
    world.edit(THREE)
    world.settle()
    assert world.observed.members.drains == {}
    assert len(world.pods) == 3


def test_a_broker_that_is_away_blocks_scale_down_until_it_is_forced() -> None:
    world = settled({"brokers": 2})
    world.edit({"brokers": 1})
    world.reconcile()
    live = {name: one for name, one in world.observed.members.live.items() if name == "orders-broker-0"}
    world.change_members(live=live, homes={"orders-broker-1": 2})
    plan = world.decide()
    assert not any("forget" in line or "StatefulSet" in line for line in plan.lines())
    world.edit({"brokers": 1}, annotations={"sterna.dev/force-drain": "true"})
    first = world.decide()
    assert any("whatever it holds" in line for line in first.lines())
    for step in first.steps:
        world._do(step)
    assert any("StatefulSet orders-broker" in line for line in world.decide().lines())


def test_what_a_broker_had_that_was_forced_to_go_unasked_may_live_elsewhere_and_the_loss_is_said() -> None:
    world = settled({"brokers": 1})
    # Its pod has gone, and it never answered.
    gone, drain = BrokerStatus(applied_revision=1, state="serving", messages=7), DrainRecord(force=True)
    world.change_members(
        statuses={**world.observed.members.statuses, "orders-broker-1": gone},
        drains={"orders-broker-1": drain},
        homes={"orders-broker-0": 1, "orders-broker-1": 2},
    )
    plan = world.decide()
    [step] = [step for step in plan.steps if isinstance(step, RemoveBroker)]
    assert step.gives_up_homes
    assert "2 destinations" in step.summary
    [announcement] = [one for one in plan.announcements if one.reason is Reason.BrokerGivenUp]
    assert "orders-broker-1" in announcement.message
    assert "7 messages" in announcement.message
    world.settle()
    assert "orders-broker-1" not in world.observed.members.homes
    assert world.observed.members.drains == {}


def test_a_broker_that_went_without_force_leaves_its_homes_alone() -> None:
    world = settled({"brokers": 1})
    gone = BrokerStatus(applied_revision=1, state="serving")
    world.change_members(
        statuses={**world.observed.members.statuses, "elsewhere": gone}, homes={"elsewhere": 2}, drains={}
    )
    [step] = [step for step in world.decide().steps if isinstance(step, RemoveBroker)]
    assert (step.broker, step.gives_up_homes) == ("elsewhere", False)


def test_without_etcd_nothing_is_scaled_down_and_the_cluster_stays_ready() -> None:
    world = settled(THREE)
    world.change_members(fault=("EtcdUnavailable", "etcd does not answer"))
    world.reconcile()
    assert world.condition() == ("True", "EtcdUnavailable")
    world.edit({"brokers": 1})
    for _ in range(3):
        world.reconcile()
    assert len(world.pods) == 3
    assert "etcd does not answer" in world.message()


def test_node_ports_are_advertised_with_the_nodes_own_address() -> None:
    world = settled({"brokers": 2, "listeners": [{"name": "out", "type": "nodePort"}]})
    port = world.child("Service", "orders-at-out-1")["spec"]["ports"][0]["nodePort"]
    addresses = world.child("ConfigMap", "orders-settings")["data"]["orders-broker-1"]
    assert addresses == f"sterna://orders-broker-1.mq.svc:7222,sterna://$(HOST_IP):{port}\n"
    assert world.desired.status["externalUrls"][0].endswith(f"+192.0.2.7:{port}")


def test_no_pod_is_made_before_its_ports_are_known() -> None:
    world = World({"brokers": 1, "listeners": [{"name": "out", "type": "nodePort"}]})
    world.reconcile()
    assert "orders-broker" not in world.names("StatefulSet")
    world.settle()
    assert "orders-broker" in world.names("StatefulSet")


def test_a_load_balancer_without_an_address_is_said_and_does_not_hold_the_cluster_up() -> None:
    world = settled({"brokers": 1, "listeners": [{"name": "lb", "type": "loadBalancer", "port": 443}]})
    assert world.condition() == ("True", "AddressPending")
    service = world.child("Service", "orders-at-lb-0")
    assert isinstance(service, dict)
    service["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}
    world.settle()
    assert world.desired.status["externalUrls"] == ["sterna://lb.example.com:443"]
    assert world.restarted == []


def test_a_cluster_reconciles_until_its_brokers_know_their_addresses_outside() -> None:
    world = settled({"brokers": 2})
    world.files_are_late = True
    world.edit({"brokers": 2, "listeners": [{"name": "out", "type": "nodePort"}]})
    world.settle()
    assert world.condition("Reconciling") == ("True", "Updating")
    assert world.condition() == ("True", "Updating")
    assert "not known yet are the addresses outside: orders-broker-0, orders-broker-1" in world.message()
    world.files_are_late = False
    world.settle()
    world.reconcile()
    assert world.condition("Reconciling") == ("False", "Serving")
    assert world.restarted == []


def test_a_cluster_reconciles_until_its_brokers_show_the_new_certificate() -> None:
    spec = {"brokers": 2, "insecure": False, "tls": {"secretName": "server"}}
    world = World(spec)
    world.observed = replace(world.observed, secrets={"server": pair()})
    world.settle()
    assert world.condition("Reconciling") == ("False", "Serving")
    world.files_are_late = True
    world.observed = replace(world.observed, secrets={"server": pair("two")})
    world.settle()
    assert world.condition("Reconciling") == ("True", "Updating")
    assert "still shown is the certificate of before: orders-broker-0, orders-broker-1" in world.message()
    statuses = world.observed.members.statuses
    silent = {name: status.model_copy(update={"certificate": ""}) for name, status in statuses.items()}
    world.change_members(statuses=silent)
    world.reconcile()
    assert world.condition("Reconciling") == ("False", "Serving"), "a broker that does not say is not waited for"
    world.files_are_late = False
    world.settle()
    world.reconcile()
    assert world.condition("Reconciling") == ("False", "Serving")


def test_an_outside_url_is_no_longer_than_clients_take() -> None:
    addresses = [f"broker-{number}.a-rather-long-domain-name.example.com:7222" for number in range(40)]
    world = settled({"brokers": 40, "listeners": [{"name": "gw", "type": "addresses", "addresses": addresses}]})
    [url] = world.desired.status["externalUrls"]
    assert url.startswith(f"sterna://{addresses[0]}+{addresses[1]}")
    assert len(url) < 1_000


def test_given_addresses_need_no_services_of_their_own() -> None:
    listener = {"name": "gw", "type": "addresses", "addresses": ["a.example.com:1", "b.example.com:2"]}
    world = settled({"brokers": 2, "listeners": [listener]})
    assert not any("-at-" in name for name in world.names("Service"))
    assert world.desired.status["externalUrls"] == ["sterna://a.example.com:1+b.example.com:2"]


def test_a_listener_that_goes_takes_its_services_with_it() -> None:
    world = settled({"brokers": 2, "listeners": [{"name": "out", "type": "nodePort"}]})
    world.edit({"brokers": 2})
    world.settle()
    assert not any("-at-" in name for name in world.names("Service"))


def test_somebody_elses_object_of_a_childs_name_is_not_touched() -> None:
    world = World({"brokers": 1})
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "orders", "uid": "x"}, "spec": {}}
    world.observed = replace(world.observed, children={("Service", "orders"): foreign})
    plan = world.reconcile()
    assert plan.steps == ()
    assert world.condition("Stalled") == ("True", "NameClaimed")


TLS = {"brokers": 1, "insecure": False, "tls": {"secretName": "server"}}


def test_pods_wait_for_the_certificate_that_they_mount() -> None:
    world = World(TLS)
    world.observed = replace(world.observed, secrets={"server": None})
    world.reconcile()
    world.reconcile()
    assert world.condition() == ("False", "ReferenceMissing")
    assert "orders-broker" not in world.names("StatefulSet")
    world.observed = replace(world.observed, secrets={"server": {**pair(), "ca.crt": b"ca"}})
    world.settle()
    assert world.condition() == ("True", "Serving")
    assert world.desired.status["url"].startswith("sternas://")
    assert "ca.crt" in world.child("Secret", "orders-connection")["data"]


def test_a_renewed_certificate_hurries_the_mount_and_restarts_nothing() -> None:
    world = World(TLS)
    world.observed = replace(world.observed, secrets={"server": pair()})
    world.settle()
    before = world.pods["orders-broker-0"].secrets
    world.observed = replace(world.observed, secrets={"server": pair("two")})
    world.settle()
    assert world.pods["orders-broker-0"].secrets != before
    assert world.restarted == []


def test_only_named_secrets_are_referred_to() -> None:
    cluster = manifest({"insecure": False, "tls": {"secretName": "server", "clientCa": {"name": "clients"}}})
    made = {"orders-etcd-ca", "orders-etcd-server", "orders-etcd-client"}
    assert referenced_secrets(cluster) == {"server", "clients"} | made


def test_cert_manager_is_asked_for_every_name_that_clients_use() -> None:
    tls = {"certManager": {"issuerRef": {"name": "ca"}, "dnsNames": ["mq.example.com"]}}
    listeners = [{"name": "gw", "type": "addresses", "addresses": ["b0.example.com:1", "198.51.100.7:2"]}]
    world = World({"brokers": 2, "insecure": False, "tls": tls, "listeners": listeners})
    world.observed = replace(world.observed, has_certificates=True, secrets={"orders-tls": pair()})
    world.settle()
    spec = world.child("Certificate", "orders-tls")["spec"]
    assert {"orders.mq.svc", "orders-broker-1.mq.svc", "mq.example.com", "b0.example.com"} <= set(spec["dnsNames"])
    assert spec["ipAddresses"] == ["198.51.100.7"]


def test_without_cert_manager_it_says_so() -> None:
    tls = {"certManager": {"issuerRef": {"name": "ca"}}}
    world = World({"brokers": 1, "insecure": False, "tls": tls})
    world.reconcile()
    assert world.condition("Stalled") == ("True", "ReferenceMissing")


def test_a_pod_monitor_only_where_its_kind_is_known() -> None:
    world = settled({"brokers": 1})
    assert world.names("PodMonitor") == set()
    world.observed = replace(world.observed, has_pod_monitors=True)
    world.settle()
    assert world.names("PodMonitor") == {"orders-broker"}


def test_volumes_grow_one_by_one_and_the_template_stays() -> None:
    world = settled({"brokers": 2, "storage": {"size": "1Gi"}})
    world.edit({"brokers": 2, "storage": {"size": "2Gi"}})
    world.settle()
    sizes = {
        name: claim["spec"]["resources"]["requests"]["storage"]
        for name, claim in world.observed.claims.items()
        if "broker" in name
    }
    assert set(sizes.values()) == {"2Gi"}


def pod(number: int, *, settings: str = "old", fault: str | None = None) -> cluster_rolling.Pod:
    return cluster_rolling.Pod(
        name=f"b-{number}",
        uid=f"uid-{number}",
        ordinal=number,
        settings=settings,
        image="",
        secrets="",
        host_ip=None,
        is_ready=True,
        is_going=False,
        fault=fault,
    )


@pytest.mark.parametrize(
    ("pods", "serving", "restarted"),
    [
        pytest.param([pod(0), pod(1)], {"b-0", "b-1"}, "b-1", id="all serve: the last one first"),
        pytest.param([pod(0), pod(1)], {"b-1"}, "b-0", id="one that serves nobody costs nothing"),
        pytest.param([pod(0), pod(1)], set(), "b-1", id="settings that none could run with are replaced"),
        pytest.param([pod(0), pod(1, settings="new")], set(), None, id="one starts, the other missed a probe"),
        pytest.param([pod(0)], set(), None, id="one is away, the other missed a probe"),
        pytest.param([pod(0, fault="no image"), pod(1, settings="new")], set(), "b-0", id="one cannot run"),
        pytest.param([pod(0), pod(1, settings="new")], {"b-0"}, None, id="one starts, the other serves"),
    ],
)
def test_no_broker_is_taken_away_beside_one_that_starts(
    pods: list[cluster_rolling.Pod], serving: set[str], restarted: str | None
) -> None:
    decided = cluster_rolling.decide(pods, 2, "new", frozenset(serving))
    assert (decided.restart.name if decided.restart else None) == restarted


def test_pods_are_restricted_and_get_no_token() -> None:
    world = settled({"brokers": 1})
    for name in ("orders-broker", "orders-etcd"):
        spec = world.child("StatefulSet", name)["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_settings_reach_brokers_as_the_manifest_that_a_laptop_takes() -> None:
    world = settled({"brokers": 1, "settings": {"slowConsumerMs": 5_000}})
    text = world.child("ConfigMap", "orders-settings")["data"]["broker.yaml"]
    assert json.loads(text)["spec"] == {"slowConsumerMs": 5_000}
    pod = world.child("StatefulSet", "orders-broker")["spec"]["template"]
    assert pod["metadata"]["annotations"][SETTINGS_ANNOTATION]


def test_a_cluster_whose_place_in_etcd_is_taken_makes_nothing() -> None:
    world = World({"brokers": 2})
    world.change_members(
        fault=("NameClaimed", "its state in etcd (shared) belongs to MessagingCluster mq/first already")
    )
    plan = world.reconcile()
    assert plan.steps == ()
    assert world.condition() == ("False", "NameClaimed")
    assert world.condition("Stalled") == ("True", "NameClaimed")
    assert "mq/first" in world.message()


def test_destinations_of_a_broker_that_is_not_there_are_spoken_of_and_given_up_by_force() -> None:
    world = settled({"brokers": 2})
    world.change_members(homes={"orders-broker-0": 1, "orders-broker-2": 3, "by-hand": 1})
    plan = world.decide()
    assert plan.steps == ()
    assert plan.status is not None
    assert plan.status.conditions[0].status == "True"
    assert "3 destinations cannot be reached, since the cluster has no broker orders-broker-2" in (
        plan.status.conditions[0].message
    )
    world.edit({"brokers": 2}, annotations={"sterna.dev/force-drain": "true"})
    world.reconcile()
    assert [step.broker for step in world.last.steps if isinstance(step, RemoveBroker) and step.gives_up_homes] == [
        "orders-broker-2"
    ]
    assert Reason.BrokerGivenUp in [one.reason for one in world.last.announcements]


def test_brokers_that_an_earlier_cluster_had_closed_are_opened_before_there_are_any() -> None:
    world = World({"brokers": 2})
    world.change_members(drains={"orders-broker-0": DrainRecord(closes_only=True), "orders-broker-1": DrainRecord()})
    steps = world.decide().steps
    assert [step.broker for step in steps if isinstance(step, RemoveDrain)] == ["orders-broker-0"]


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        pytest.param({}, {"memory": "2Gi"}, id="by default"),
        pytest.param({"settings": {"log": {"cacheBytes": 2**30}}}, {"memory": "2816Mi"}, id="as the settings need it"),
        pytest.param({"pod": {"resources": {"requests": {"memory": "4G"}}}}, {"memory": "4G"}, id="as requested"),
        pytest.param({"pod": {"resources": {"requests": {}}}}, {"memory": "2Gi"}, id="nothing requested"),
        pytest.param(
            {"pod": {"resources": {"requests": {"memory": "512Mi"}, "limits": {"memory": "600Mi"}}}},
            {"memory": "600Mi"},
            id="as said",
        ),
        pytest.param({"pod": {"resources": {"limits": {"cpu": 2}}}}, {"memory": "2Gi", "cpu": 2}, id="beside others"),
    ],
)
def test_a_broker_has_a_limit_of_memory(spec: dict[str, Any], limits: dict[str, Any]) -> None:
    world = settled(spec)
    [container] = world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == limits


def test_another_limit_that_the_operator_chooses_restarts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled({})
    monkeypatch.setattr(brokers, "_MEMORY_RESERVE_BYTES", 2**30)
    world.settle()
    [container] = world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "1536Mi"}, "which holds for who is started anyway"
    assert world.restarted == []


def _preferred(world: World) -> list[dict[str, Any]]:
    template = world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]
    anti = template.get("affinity", {}).get("podAntiAffinity", {})
    return list(anti.get("preferredDuringSchedulingIgnoredDuringExecution", ()))


def test_brokers_prefer_other_nodes_by_a_wish_that_needs_no_zones() -> None:
    """A constraint beside one over zones counts on no node that has no zone: what is wished counts by itself."""
    world = settled(THREE)
    selector = world.child("StatefulSet", "orders-broker")["spec"]["selector"]
    keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert [one["podAffinityTerm"] for one in _preferred(world)] == [
        {"topologyKey": key, "labelSelector": selector} for key in keys
    ]
    strict = settled({**THREE, "topologySpread": {"keys": ["zone"], "whenUnsatisfiable": "DoNotSchedule"}})
    assert _preferred(strict) == []
    template = strict.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]
    assert [one["topologyKey"] for one in template["topologySpreadConstraints"]] == ["zone"]


def test_what_a_manifest_says_of_affinity_stays_beside_the_spreading() -> None:
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}}
    own = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}, "nodeAffinity": {}}
    world = settled({**THREE, "pod": {"affinity": own}})
    found = _preferred(world)
    assert found[0] == term
    assert len(found) == 3
    assert "nodeAffinity" in world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]["affinity"]
