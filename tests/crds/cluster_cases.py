"""The table for clusters; see `cases`."""

from typing import Any

from tests.crds.cases import CLUSTER, SECURE, Case

_ETCD = "needs either managed or endpoints, one of them"
_HTTPS = "tls and credentialsSecret need endpoints that begin with https://"
_OWN = "tls and credentialsSecret are for endpoints: a managed etcd has its own"
_CERTIFICATE = "needs either secretName, certManager or generated, one of them"
_FEW = "a listener has fewer addresses or nodePorts than there are brokers"
_ORDINAL = "with several brokers, host of a load balancer needs {ordinal}"
_GRACE = "pod.terminationGracePeriodSeconds has to be at least 5 seconds more than settings.drainMs"
_VOLUME = "storage.size has to be more than 4 times settings.log.segmentBytes"
_SEGMENT_BYTES = 64 * 2**20
_SMALL_SEGMENTS = {"log": {"segmentBytes": 2**20}, "limits": {"messageBytes": 2**19}}
_NAMED = "names go with policy named"
_WITHIN = "requests are more than limits allow"
_SEGMENT = "limits.messageBytes may be half of log.segmentBytes at most"
_OPEN_MS = "must be 0 or from 100 to 86400000"
_MEANT = "anybody on the network may read or do everything: insecure: true says that this is meant"


def _taken(spec: dict[str, Any], **more: Any) -> Case:
    return Case("MessagingCluster", spec, **more)


def _refused(spec: dict[str, Any], said: str, here: str | None = None, **more: Any) -> Case:
    return Case("MessagingCluster", spec, said, said if here is None else here, **more)


def _listening(*listeners: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**CLUSTER, "listeners": list(listeners), **more}


def _etcd(**etcd: Any) -> dict[str, Any]:
    return {"etcd": etcd, "insecure": True}


def _listeners() -> list[Case]:
    port = {"name": "out", "type": "nodePort"}
    balancer = {"name": "out", "type": "loadBalancer"}
    given = {"name": "out", "type": "addresses", "addresses": ["b0.example.com:7222"]}
    return [
        _taken(_listening(port)),
        _taken(_listening({**port, "nodePorts": [30000, 30001], "host": "nodes.example.com"}, brokers=2)),
        _taken(_listening({**balancer, "host": "b{ordinal}.example.com", "annotations": {"a/b": "c"}}, brokers=3)),
        _taken(_listening({**balancer, "loadBalancerClass": "x", "loadBalancerSourceRanges": ["10.0.0.0/8"]})),
        _taken(_listening({**balancer, "host": "b.example.com"})),
        _taken(_listening(given)),
        _taken(_listening({**given, "addresses": ["[fe80::1]:7222", "b1:1"]}, brokers=2)),
        _taken(_listening(port, {**port, "name": "other"})),
        _refused(_listening(port, port), "Duplicate value", "two listeners have one name"),
        _refused(_listening({"name": "out", "type": "addresses"}), "addresses are missing: one for each broker"),
        _refused(_listening({**given, "host": "x"}), "host and addresses say the same: give one of them"),
        _refused(_listening({**balancer, "nodePorts": [30000]}), "nodePorts are for type nodePort"),
        _refused(
            _listening({**port, "loadBalancerClass": "x"}),
            "loadBalancerClass and loadBalancerSourceRanges are for type loadBalancer",
        ),
        _refused(_listening({**port, "nodePorts": [30000, 30000]}), "a port is named twice"),
        _refused(_listening(given, brokers=2), _FEW),
        _refused(_listening({**port, "nodePorts": [30000]}, brokers=2), _FEW),
        _refused(_listening({**balancer, "host": "b.example.com"}, brokers=2), _ORDINAL),
        _refused(_listening({**given, "addresses": ["b0.example.com"]}), "should match"),
        _refused(_listening({**port, "name": "a" * 16}), "may not be more than 15", "at most 15"),
        _refused(_listening({**port, "name": "A"}), "should match"),
        _refused(_listening({**port, "type": "x"}), "Unsupported value", "should be 'nodePort'"),
    ]


def _access() -> list[Case]:
    issuer = {"certManager": {"issuerRef": {"name": "ca"}}}
    return [
        _taken(SECURE),
        _taken({**SECURE, "tls": {**issuer, "ca": {"name": "ca"}, "clientCa": {"name": "clients", "key": "ca.pem"}}}),
        _taken({**CLUSTER, "authentication": {"enabled": False}}),
        _refused({**SECURE, "tls": {}}, _CERTIFICATE),
        _refused({**SECURE, "tls": {**issuer, "secretName": "x"}}, _CERTIFICATE),
        _refused({"etcd": {"managed": {}}}, f"without tls {_MEANT}"),
        _refused({**SECURE, "authentication": {"enabled": False}}, f"without authentication {_MEANT}"),
    ]


def _etcds() -> list[Case]:
    https, http = ["https://a:2379", "https://b:2379"], ["http://a:2379"]
    ca = {"ca": {"name": "etcd-ca"}}
    return [
        _taken(_etcd(endpoints=http)),
        _taken(
            _etcd(endpoints=https, tls={**ca, "certificateSecret": "me"}, credentialsSecret="root", clusterName="a")
        ),
        _taken(_etcd(managed={"image": "x", "storage": {"size": "1Gi", "storageClassName": "fast"}})),
        _refused(_etcd(), _ETCD),
        _refused(_etcd(managed={}, endpoints=http), _ETCD),
        _refused(_etcd(managed={}, credentialsSecret="x"), _OWN),
        _refused(_etcd(endpoints=http, tls=ca), _HTTPS),
        _refused(_etcd(endpoints=[*https, *http], credentialsSecret="x"), _HTTPS),
        _refused(_etcd(endpoints=["a:2379"]), "should match"),
        _refused({"insecure": True}, "spec.etcd: Required value", "is missing"),
    ]


def _pods() -> list[Case]:
    def pod(**pod: Any) -> dict[str, Any]:
        return {**CLUSTER, "pod": pod}

    return [
        _taken(CLUSTER, name="a" * 40),
        _refused(CLUSTER, "metadata.name: at most 40 lower-case letters", name="a" * 41),
        _refused(CLUSTER, "metadata.name: at most 40 lower-case letters", name="0a"),
        _refused(CLUSTER, "metadata.name: at most 40 lower-case letters", name="a.b"),
        _taken({**CLUSTER, "settings": {"drainMs": 55_000}}),
        _refused({**CLUSTER, "settings": {"drainMs": 55_001}}, _GRACE),
        _refused(pod(terminationGracePeriodSeconds=14), _GRACE),
        _taken({**CLUSTER, "settings": {"limits": {"messageBytes": 33_554_432}}}),
        _refused({**CLUSTER, "settings": {"limits": {"messageBytes": 33_554_433}}}, _SEGMENT),
        _refused({**CLUSTER, "settings": {"log": {"segmentBytes": 33_554_431}}}, _SEGMENT),
        *(_taken({**CLUSTER, "settings": {"limits": {"transactionMs": value}}}) for value in (0, 100, 86_400_000)),
        *(_refused({**CLUSTER, "settings": {"limits": {"transactionMs": value}}}, _OPEN_MS) for value in (1, 99)),
        _taken(pod(resources={"requests": {"cpu": 2, "memory": "1.5Gi"}, "limits": {"memory": "2Gi"}})),
        _refused(pod(resources={"requests": {"cpu": "a lot"}}), "should match", "must be an amount"),
        _taken(pod(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "2048Mi"}})),
        _taken(pod(resources={"requests": {"cpu": "2"}, "limits": {"memory": "1Mi"}})),
        _refused(pod(resources={"limits": {"memory": "1023Mi"}}), _WITHIN),
        _refused(pod(resources={"requests": {"cpu": 2}, "limits": {"cpu": "1999m"}}), _WITHIN),
        _taken(pod(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}])),
        _refused(pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), "value is for operator Equal"),
        _refused(pod(tolerations=[{"value": "b"}]), "without key, operator has to be Exists"),
        _taken(pod(affinity={"nodeAffinity": {"any": ["thing"]}}, labels={"a": "b"}, imagePullSecrets=[{"name": "x"}])),
        _taken({**CLUSTER, "storage": {"size": 4 * _SEGMENT_BYTES + 1}}),
        _taken({**CLUSTER, "storage": {"size": "257Mi"}}),
        _taken({**CLUSTER, "storage": {"size": "5Mi"}, "settings": _SMALL_SEGMENTS}),
        _refused({**CLUSTER, "storage": {"size": "100Mi"}}, _VOLUME),
        _refused({**CLUSTER, "storage": {"size": "256Mi"}}, _VOLUME),
        _refused({**CLUSTER, "storage": {"size": 5}}, _VOLUME),
        _refused({**CLUSTER, "storage": {"size": "268435456000m"}}, _VOLUME),
        _refused({**CLUSTER, "storage": {"size": "4Mi"}, "settings": _SMALL_SEGMENTS}, _VOLUME),
        _refused({**CLUSTER, "settings": {"log": {"segmentBytes": 2**30}}, "storage": {"size": "4Gi"}}, _VOLUME),
        _taken({**CLUSTER, "storage": {"size": "500Gi", "storageClassName": "fast"}}),
        _refused({**CLUSTER, "storage": {"size": "much"}}, "should match", "must be an amount"),
        _refused({**CLUSTER, "storage": {"size": "-1Gi"}}, "should match", "must be an amount"),
        _taken({**CLUSTER, "allowedNamespaces": {"policy": "named", "names": ["a", "b"]}}),
        _taken({**CLUSTER, "allowedNamespaces": {"policy": "all"}}),
        _refused({**CLUSTER, "allowedNamespaces": {"policy": "named"}}, _NAMED),
        _refused({**CLUSTER, "allowedNamespaces": {"names": ["a"]}}, _NAMED),
        _taken(
            {
                **CLUSTER,
                "networkPolicy": {"clients": [{"podSelector": {}}], "monitors": [{"ipBlock": {"cidr": "::/0"}}]},
            }
        ),
        _taken({**CLUSTER, "topologySpread": {"keys": []}, "monitoring": {"podMonitor": False}}),
        _refused({}, "spec.etcd: Required value", "is missing"),
    ]


def cluster_cases() -> list[Case]:
    """The whole table."""
    return [*_listeners(), *_access(), *_etcds(), *_pods()]
