"""Certificates that the operator makes, for brokers (`tls.generated`) and for a managed etcd, and renews."""

import asyncio
import copy
import datetime
import json
import time  # the certificates are of today, as etcd sees it
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID
from sterna_etcd import Etcd
from sterna_operator.builders import authority
from sterna_operator.builders.authority import Order
from sterna_operator.builders.connection import encoded
from sterna_operator.builders.etcd import access_flags
from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.kinds.cluster_rolling import Pod
from sterna_operator.kube import path
from sterna_operator.objects import CLUSTER
from sterna_operator.plans import ApplyObject, RemoveObject, Step
from sterna_operator.secrets import Secret, Secrets

from tests.etcds import RunningEtcd
from tests.operator.cluster_world import World, manifest, settled
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World as Kubernetes
from tests.waiting import eventually

NOW = 1_800_000_000_000
DAY = 86_400_000
SERVER = Order("server", "mq.ns.svc", "server", ("mq.ns.svc", "127.0.0.1"))
CLIENT = Order("client", "mq", "client")
GENERATED = {"tls": {"generated": {"dnsNames": ["mq.example.com", "192.0.2.9"]}}, "insecure": False}


def issue(standing: Mapping[str, Mapping[str, bytes] | None], now_ms: int = NOW, *orders: Order) -> dict[str, Any]:
    return authority.issued("ca", orders or (SERVER, CLIENT), standing, now_ms)


def certificate(data: Mapping[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data["tls.crt"])


# The authority


def test_what_is_made_is_for_a_year_and_signed_by_an_authority_whose_key_is_apart() -> None:
    made = issue({})
    assert list(made) == ["ca", "server", "client"]
    assert {name: sorted(data) for name, data in made.items()} == {
        "ca": ["tls.crt", "tls.key"],
        "server": ["ca.crt", "tls.crt", "tls.key"],
        "client": ["ca.crt", "tls.crt", "tls.key"],
    }
    ca = certificate(made["ca"])
    for name, usage in (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH)):
        one = certificate(made[name])
        one.verify_directly_issued_by(ca)
        assert (one.not_valid_after_utc - one.not_valid_before_utc).days == 365
        assert list(one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        assert made[name]["ca.crt"] == made["ca"]["tls.crt"]
        assert made["ca"]["tls.key"] not in made[name].values()
    names = certificate(made["server"]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["mq.ns.svc", "127.0.0.1"]


def test_what_is_right_is_left_alone_until_two_thirds_of_its_time_have_passed() -> None:
    made = issue({})
    assert issue(made) == {}
    assert issue(made, NOW + 240 * DAY) == {}
    renewed = issue(made, NOW + 245 * DAY)
    assert sorted(renewed) == ["client", "server"]
    assert certificate(renewed["server"]).not_valid_after_utc > certificate(made["server"]).not_valid_after_utc
    assert renewed["server"]["ca.crt"] == made["server"]["ca.crt"], "whoever trusts the former trusts this one"


def _broken(made: Mapping[str, dict[str, bytes]], name: str, **fields: bytes | None) -> dict[str, Any]:
    changed = copy.deepcopy(dict(made))
    changed[name] = {key: value for key, value in {**made[name], **fields}.items() if value is not None}
    return changed


@pytest.mark.parametrize(
    ("fields", "anew"),
    [
        pytest.param({"tls.crt": b"no certificate"}, ["server"], id="certificate"),
        pytest.param({"tls.key": b"no key"}, ["server"], id="key"),
        pytest.param({"tls.key": None}, ["server"], id="no key"),
        pytest.param({"ca.crt": b""}, ["server"], id="authority"),
    ],
)
def test_what_somebody_has_broken_is_made_anew(fields: dict[str, bytes | None], anew: list[str]) -> None:
    assert list(issue(_broken(issue({}), "server", **fields))) == anew


def test_a_key_of_another_and_other_names_are_noticed() -> None:
    made, other = issue({}), issue({})
    assert list(issue(_broken(made, "server", **{"tls.key": other["server"]["tls.key"]}))) == ["server"]
    assert list(issue(made, NOW, replace(SERVER, hosts=("mq.ns.svc", "new")), CLIENT)) == ["server"]


def test_a_new_authority_is_trusted_beside_the_former_one() -> None:
    made = issue({})
    before = made.pop("ca")
    after = issue(made)
    assert sorted(after) == ["ca", "client", "server"]
    assert after["server"]["ca.crt"] == after["ca"]["tls.crt"] + before["tls.crt"]
    standing = {**made, **after}
    assert issue(standing) == {}
    # The next one carries this one, and no more the first.
    again = issue({**standing, "ca": None})
    assert again["server"]["ca.crt"] == again["ca"]["tls.crt"] + after["ca"]["tls.crt"]
    # One that is about to end is made anew by itself, before what it has issued ends.
    assert "ca" in issue(standing, NOW + 3300 * DAY)
    assert "ca" not in issue(standing, NOW + 3200 * DAY)


def _verified(data: Mapping[str, bytes], trusted: bytes, now_ms: int) -> bool:
    """As a client that trusts this: whether it would go on."""
    time_ = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    roots = x509.load_pem_x509_certificates(trusted)
    own = certificate(data)

    def is_in_force(one: x509.Certificate) -> bool:
        return one.not_valid_before_utc <= time_ <= one.not_valid_after_utc

    def is_signed(by: x509.Certificate) -> bool:
        try:
            own.verify_directly_issued_by(by)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    return is_in_force(own) and any(is_in_force(one) and is_signed(one) for one in roots)


def test_who_trusts_the_former_authority_alone_goes_on_until_the_next_renewal() -> None:
    made = issue({})
    before = made["server"]["ca.crt"]
    standing = {**made, **issue({**made, "ca": None})}
    assert standing["ca"] != made["ca"]
    assert _verified(standing["server"], before, NOW), "clients have had no time to learn of the new one"
    assert standing["server"]["ca.crt"].endswith(before)
    after = standing["server"]["ca.crt"]
    assert issue(standing, NOW + 240 * DAY) == {}
    standing |= issue(standing, NOW + 245 * DAY)
    certificate(standing["server"]).verify_directly_issued_by(certificate(standing["ca"]))
    assert _verified(standing["server"], after, NOW + 245 * DAY), "they had until now"
    # What is deleted as well, one after the other, is made by the new one at once, and trusts the former no more.
    for name in ("server", "client"):
        standing = {**standing, name: None}
        standing |= issue(standing)
        assert standing[name]["ca.crt"] == standing["ca"]["tls.crt"]
        assert issue(standing) == {}


def test_an_authority_that_ends_soon_goes_on_with_what_it_has_issued() -> None:
    made = issue({})
    late = NOW + 3200 * DAY
    standing = {**made, **issue(made, late)}
    before = standing["server"]["ca.crt"]
    anew = issue(standing, late + 60 * DAY)
    assert "ca" in anew
    assert _verified(anew["server"], before, late + 60 * DAY)


@pytest.mark.parametrize("days", [300, 3300, 4000])
def test_a_clock_that_was_ahead_leaves_nothing_that_nobody_believes_yet(days: int) -> None:
    made = issue({})
    ahead = {**made, **issue(made, NOW + days * DAY)}
    back = {**ahead, **issue(ahead, NOW)}
    for name in ("server", "client"):
        assert _verified(back[name], back[name]["ca.crt"], NOW)
        assert _verified(back[name], back["ca"]["tls.crt"], NOW)
    assert issue(back, NOW) == {}


def test_an_operator_that_dies_between_two_writes_leaves_pairs_that_the_next_one_completes() -> None:
    """After any of the writes, of a first making, of a renewal and of another authority: nobody is cut off."""
    made = issue({})
    gone = {**made, "ca": None}
    for standing, now_ms in (({}, NOW), (made, NOW + 245 * DAY), (gone, NOW), (made, NOW + 3300 * DAY)):
        writes = list(issue(standing, now_ms).items())
        for done in range(len(writes) + 1):
            left = {**standing, **dict(writes[:done])}
            whole = {**left, **issue(left, now_ms)}
            assert issue(whole, now_ms) == {}
            for name in ("server", "client"):
                assert _verified(whole[name], whole[name]["ca.crt"], now_ms)
                assert certificate(whole["ca"]) in x509.load_pem_x509_certificates(whole[name]["ca.crt"])
            # Both sides trust each other whatever of it was written, as long as what is shown is not over.
            pairs = {name: left.get(name) for name in ("server", "client")}
            if all(pairs.values()) and now_ms < NOW + 365 * DAY:
                for one, other in (("server", "client"), ("client", "server")):
                    assert _verified(pairs[one] or {}, (pairs[other] or {})["ca.crt"], now_ms)


@pytest.mark.parametrize("server", ["first", "second", "gone", "spoilt"])
@pytest.mark.parametrize("client", ["first", "second", "gone", "spoilt"])
@pytest.mark.parametrize("ca", ["first", "second", "gone"])
def test_whatever_is_left_of_two_authorities_both_sides_trust_each_other(ca: str, server: str, client: str) -> None:
    """What two operators have written past each other, and what people delete."""
    made: dict[str, Any] = {"first": issue({}), "second": issue({}), "gone": {}}
    made["spoilt"] = {name: {**data, "ca.crt": b"spoilt"} for name, data in made["first"].items()}
    left = {"ca": made[ca].get("ca"), "server": made[server].get("server"), "client": made[client].get("client")}
    whole = {**left, **issue(left)}
    assert issue(whole) == {}
    for one, other in (("server", "client"), ("client", "server")):
        assert _verified(whole[one], whole[other]["ca.crt"], NOW)


def test_an_authority_that_is_there_already_is_taken_but_no_mere_certificate() -> None:
    given = issue({})["ca"]
    made = issue({"ca": given})
    assert "ca" not in made
    certificate(made["server"]).verify_directly_issued_by(certificate(given))
    assert "ca" in issue({"ca": issue({})["server"]})


# In a cluster


def secrets(steps: Iterable[Step]) -> list[str]:
    return sorted(
        step.manifest["metadata"]["name"]
        for step in steps
        if isinstance(step, ApplyObject) and step.manifest["kind"] == "Secret"
    )


def etcd_flags(world: World) -> list[str]:
    container = world.child("StatefulSet", "orders-etcd")["spec"]["template"]["spec"]["containers"][0]
    return list(container["args"])


def broker_flags(world: World) -> list[str]:
    container = world.child("StatefulSet", "orders-broker")["spec"]["template"]["spec"]["containers"][0]
    return list(container["args"])


def mounted(world: World) -> set[str]:
    """All Secrets that pods mount."""
    found = set()
    for child in (world.child("StatefulSet", "orders-broker"), world.child("StatefulSet", "orders-etcd")):
        for volume in child["spec"]["template"]["spec"].get("volumes", ()):
            found |= {volume["secret"]["secretName"]} if "secret" in volume else set()
    return found


def test_a_managed_etcd_is_for_those_with_its_certificate_alone() -> None:
    world = settled({})
    assert "--client-cert-auth=true" in etcd_flags(world)
    assert "--listen-client-urls=https://0.0.0.0:2379" in etcd_flags(world)
    given = broker_flags(world)
    assert given[given.index("--etcd") + 1] == "https://orders-etcd.mq.svc:2379"
    assert given[given.index("--etcd-cert") + 1] == "/etc/sterna/etcd-tls/tls.crt"
    assert mounted(world) == {"orders-etcd-server", "orders-etcd-client"}


def test_no_pod_mounts_a_key_of_an_authority() -> None:
    world = settled(GENERATED)
    assert mounted(world) == {"orders-etcd-server", "orders-etcd-client", "orders-tls"}
    for name in mounted(world):
        assert sorted(world.observed.secrets[name] or ()) == ["ca.crt", "tls.crt", "tls.key"]
        certificate_ = certificate(world.observed.secrets[name] or {})
        assert not certificate_.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    manifests = json.dumps([child for key, child in world.observed.children.items() if key[0] != "Secret"])
    assert "orders-ca" not in manifests
    assert "orders-etcd-ca" not in manifests


def test_the_brokers_certificate_names_all_that_they_are_called() -> None:
    world = settled(GENERATED)
    names = certificate(world.observed.secrets["orders-tls"] or {}).extensions
    hosts = {str(one.value) for one in names.get_extension_for_class(x509.SubjectAlternativeName).value}
    assert {"orders.mq.svc", "orders-broker-0.mq.svc", "mq.example.com", "192.0.2.9", "localhost"} <= hosts
    ca = (world.observed.secrets["orders-tls"] or {})["ca.crt"]
    assert world.child("Secret", "orders-connection")["data"]["ca.crt"] == encoded(ca)
    world.edit({**GENERATED, "brokers": 2})
    world.settle()
    names = certificate(world.observed.secrets["orders-tls"] or {}).extensions
    hosts = {str(one.value) for one in names.get_extension_for_class(x509.SubjectAlternativeName).value}
    assert "orders-broker-1.mq.svc" in hosts
    assert world.restarted == []


def test_certificates_are_renewed_and_nothing_is_restarted() -> None:
    world = settled(GENERATED)
    etcd_pod(world)
    before = dict(world.observed.secrets)
    world.observed = replace(world.observed, now_ms=world.observed.now_ms + 250 * DAY)
    renewed = world.reconcile()
    assert secrets(renewed.steps) == ["orders-etcd-client", "orders-etcd-server", "orders-tls"]
    world.settle()
    assert world.restarted == []
    for name in ("orders-tls", "orders-etcd-client"):
        assert (world.observed.secrets[name] or {})["tls.crt"] != (before[name] or {})["tls.crt"]
        assert (world.observed.secrets[name] or {})["ca.crt"] == (before[name] or {})["ca.crt"]


def etcd_pod(world: World) -> None:
    """As the StatefulSet's controller: the pod that its template says."""
    template = world.child("StatefulSet", "orders-etcd")["spec"]["template"]
    settings = template["metadata"].get("annotations", {}).get("sterna.dev/settings", "")
    pod = Pod("orders-etcd-0", "u", 0, settings, "etcd", "", None, is_ready=True, is_going=False)
    world.observed = replace(world.observed, etcd_pod=pod)


def removed(steps: Iterable[Step]) -> list[str]:
    return [step.name for step in steps if isinstance(step, RemoveObject) and step.kind == "Pod"]


def test_etcd_is_restarted_when_its_authority_is_another_and_only_then() -> None:
    world = settled({})
    etcd_pod(world)
    assert world.reconcile().steps == ()
    world.observed = replace(world.observed, secrets={**world.observed.secrets, "orders-etcd-ca": None})
    plan = world.reconcile()
    assert secrets(plan.steps) == ["orders-etcd-ca", "orders-etcd-client", "orders-etcd-server"]
    assert removed(plan.steps) == ["orders-etcd-0"]
    etcd_pod(world)
    world.settle()
    assert world.restarted == ["orders-etcd-0"]


def _of_before(spec: Mapping[str, Any] | None = None) -> World:
    """A cluster as an operator of before has left it: its etcd is for whoever reaches it."""
    world = settled({"etcd": {"managed": {"tls": False}}, **(spec or {})})
    world.edit({**(spec or {})})
    world.observed = replace(world.observed, secrets={})
    etcd_pod(world)
    return world


def test_a_newer_operator_leaves_an_etcd_alone_that_was_begun_without() -> None:
    world = _of_before()
    assert world.settle().steps == ()
    assert world.restarted == []
    assert "--listen-client-urls=http://0.0.0.0:2379" in etcd_flags(world)
    assert "orders-etcd-server" not in mounted(world)
    # Nor where somebody has deleted its StatefulSet: brokers come to it as before.
    del world.observed.children["StatefulSet", "orders-etcd"]  # type: ignore[attr-defined]
    world.settle()
    assert "--listen-client-urls=http://0.0.0.0:2379" in etcd_flags(world)


@pytest.mark.parametrize("taken", ["annotations", "args"])
def test_an_etcd_that_speaks_tls_is_not_opened_by_what_somebody_takes_from_its_template(taken: str) -> None:
    world = settled({})
    etcd_pod(world)
    standing = copy.deepcopy(dict(world.child("StatefulSet", "orders-etcd")))
    template = standing["spec"]["template"]
    del (template["metadata"] if taken == "annotations" else template["spec"]["containers"][0])[taken]
    children = {**world.observed.children, ("StatefulSet", "orders-etcd"): standing}
    world.observed = replace(world.observed, children=children)
    world.settle()
    assert "--listen-client-urls=https://0.0.0.0:2379" in etcd_flags(world)
    assert broker_flags(world)[broker_flags(world).index("--etcd") + 1].startswith("https://")
    assert world.restarted == []


@pytest.mark.parametrize("name", ["orders-ca", "orders-tls", "orders-etcd-ca", "orders-etcd-server"])
def test_applications_secret_cannot_be_one_of_the_operators_own(name: str) -> None:
    """One would be written over by the other, again and again, and applications given an authority's key."""
    world = World({**GENERATED, "connectionSecret": name})
    for _ in range(3):
        assert world.reconcile().steps == ()
    assert world.condition() == ("False", "NameClaimed")
    assert f"spec.connectionSecret: {name}" in world.message()
    world.edit({**GENERATED, "connectionSecret": "orders-mine"})
    world.settle()
    assert world.condition() == ("True", "Serving")


def test_it_is_secured_when_the_manifest_says_so_one_pod_after_the_other() -> None:
    world = _of_before({"brokers": 2})
    world.edit({"brokers": 2, "etcd": {"managed": {"tls": True}}})
    plan = world.reconcile()
    assert secrets(plan.steps) == ["orders-etcd-ca", "orders-etcd-client", "orders-etcd-server"]
    etcd_pod(world)
    world.settle()
    assert world.restarted[0] == "orders-etcd-0"
    assert sorted(world.restarted[1:]) == ["orders-broker-0", "orders-broker-1"]
    assert broker_flags(world)[broker_flags(world).index("--etcd") + 1].startswith("https://")
    world.edit({"brokers": 2})
    assert world.settle().steps == (), "once it speaks TLS it stays so"


# On an API server


@pytest.mark.slow_callbacks(30_000)
async def test_the_operator_makes_them_as_secrets_of_the_clusters_own(
    world: Kubernetes, operator: MakeOperator
) -> None:
    operator(only_etcd=False, broker_image="broker:1", etcd_image="etcd:1")
    world.apply("MessagingCluster", "mq", {"etcd": {"managed": {}}, "tls": {"generated": {}}})

    def found(name: str) -> dict[str, Any]:
        answer = world.server.request("GET", path("v1", "Secret", world.namespace, name))
        return dict(answer.body) if answer.ok else {}

    names = ["mq-ca", "mq-tls", "mq-etcd-ca", "mq-etcd-server", "mq-etcd-client"]
    await eventually(lambda: all(map(found, names)), timeout_s=30.0)
    await eventually(
        lambda: world.server.request("GET", path("apps/v1", "StatefulSet", world.namespace, "mq-broker")).ok,
        timeout_s=30.0,
    )
    cluster = world.get("MessagingCluster", "mq") or {}
    for name in names:
        owners = found(name)["metadata"]["ownerReferences"]
        assert [one["uid"] for one in owners] == [cluster["metadata"]["uid"]]
    # One that is deleted comes back, of the same authority.
    before = found("mq-tls")
    assert world.server.request("DELETE", path("v1", "Secret", world.namespace, "mq-tls")).ok
    await eventually(lambda: found("mq-tls"), timeout_s=30.0)
    assert found("mq-tls")["data"]["ca.crt"] == before["data"]["ca.crt"]
    await eventually(lambda: world.condition("MessagingCluster", "mq", "CertificateValid").get("status") == "True")


@pytest.mark.slow_callbacks(30_000)
async def test_a_secret_of_that_name_that_is_somebody_elses_is_not_overwritten(
    world: Kubernetes, operator: MakeOperator
) -> None:
    world.certificate("mq-tls", {"tls.crt": b"theirs", "tls.key": b"theirs"})
    operator(only_etcd=False, broker_image="broker:1", etcd_image="etcd:1")
    world.apply("MessagingCluster", "mq", {"etcd": {"managed": {}}, "tls": {"generated": {}}})
    assert "Secret mq-tls exists already" in await world.reason("MessagingCluster", "mq", "NameClaimed")
    answer = world.server.request("GET", path("v1", "Secret", world.namespace, "mq-tls"))
    assert "ownerReferences" not in answer.body["metadata"]
    # Once it is gone, as a chart of before takes it away, the operator makes its own.
    assert world.server.request("DELETE", path("v1", "Secret", world.namespace, "mq-tls")).ok
    await world.reason("MessagingCluster", "mq", "Starting")


# The operator's own way to it


class Given:
    """Secrets as they were just read."""

    def __init__(self, made: Mapping[str, Mapping[str, bytes]]) -> None:
        self.made = made

    async def get(self, namespace: str, name: str) -> Secret | None:
        assert namespace == "mq"
        return Secret("1", dict(self.made[name])) if name in self.made else None


@pytest.mark.slow_callbacks(30_000)
async def test_the_operator_comes_to_a_managed_etcd_with_its_certificate(tier_etcd: None, tmp_path: Path) -> None:
    orders = (Order("orders-etcd-server", "etcd", "server", ("localhost", "127.0.0.1")), CLIENT_OF_ORDERS)
    made = authority.issued("orders-etcd-ca", orders, {}, round(time.time() * 1000))
    for key, value in made["orders-etcd-server"].items():
        (tmp_path / key).write_bytes(value)
    absent, given = cast("Any", None), Given({})
    clusters = Clusters(absent, absent, absent)
    settings = partial(clusters._settings, Key(CLUSTER, "mq", "orders"), manifest({}), cast("Secrets", given))
    assert (await settings(is_secured=False)).endpoints == ("http://orders-etcd.mq.svc:2379",)
    with pytest.raises(ValueError, match="waits for the Secret mq/orders-etcd-client"):
        await settings(is_secured=True)
    given.made = made
    chosen = await settings(is_secured=True)
    assert chosen.endpoints == ("https://orders-etcd.mq.svc:2379",)
    running = RunningEtcd(tmp_path / "etcd", scheme="https", flags=access_flags(str(tmp_path)))
    try:
        await asyncio.to_thread(running.start)
        async with Etcd(replace(chosen, endpoints=(running.urls,))) as client:
            await client.put("a", b"1")
    finally:
        await asyncio.to_thread(running.stop)
        await clusters.close()


CLIENT_OF_ORDERS = Order("orders-etcd-client", "mq", "client")
