"""What limits a cluster: an account without rights, a budget of disruptions, a network policy."""

from typing import Any

from sterna_operator.builders.blueprint import ETCD_PORT, MESSAGING_PORT, MONITOR_PORT, Blueprint


def build(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Those that are wanted."""
    built = [service_account(blueprint)]
    if blueprint.spec.disruption_budget.enabled:
        built.append(disruption_budget(blueprint))
    if blueprint.spec.network_policy.enabled:
        built.append(network_policy(blueprint))
        if blueprint.spec.etcd.managed is not None:
            built.append(etcd_policy(blueprint))
    return built


def service_account(blueprint: Blueprint) -> dict[str, Any]:
    """The pods' account. No role is bound to it, and no pod gets its token."""
    return blueprint.object("v1", "ServiceAccount", blueprint.brokers, automountServiceAccountToken=False)


def disruption_budget(blueprint: Blueprint) -> dict[str, Any]:
    """How many brokers an eviction may take. A pod that is not ready may go: else it blocks its node for ever."""
    spec = {
        "maxUnavailable": blueprint.spec.disruption_budget.max_unavailable,
        "selector": {"matchLabels": blueprint.selector("broker")},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return blueprint.object("policy/v1", "PodDisruptionBudget", blueprint.brokers, spec=spec)


def network_policy(blueprint: Blueprint) -> dict[str, Any]:
    """Who reaches the two ports; nobody reaches any other."""
    wanted = blueprint.spec.network_policy
    ingress = [_rule(MESSAGING_PORT, wanted.clients), _rule(MONITOR_PORT, wanted.monitors)]
    return _policy(blueprint, blueprint.brokers, "broker", ingress)


def etcd_policy(blueprint: Blueprint) -> dict[str, Any]:
    """A managed etcd has no passwords: only the brokers and the operator are let through."""
    pods = blueprint.operator_pods
    operator = {
        # The API server gives every namespace this label.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": pods.namespace}},
        "podSelector": {"matchLabels": dict(pods.labels)},
    }
    brokers = {"podSelector": {"matchLabels": blueprint.selector("broker")}}
    return _policy(blueprint, blueprint.etcd, "etcd", [_rule(ETCD_PORT, [brokers, operator])])


def _policy(blueprint: Blueprint, name: str, component: str, ingress: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {
        "podSelector": {"matchLabels": blueprint.selector(component)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return blueprint.object("networking.k8s.io/v1", "NetworkPolicy", name, component, spec=spec)


def _rule(port: int, peers: list[dict[str, Any]]) -> dict[str, Any]:
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port}]}
    if peers:
        rule["from"] = [dict(peer) for peer in peers]
    return rule
