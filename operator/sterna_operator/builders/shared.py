"""What may stand in a cluster's children beside what their manifests say.

Everything else is the operator's alone: what somebody adds there by hand is taken away again (`differences`). Three
sorts are left alone, each named here:

- what the API server puts in where a manifest is silent: exactly that value, so that another one is no default;
- what Kubernetes gives out (addresses, node ports), whatever the value is;
- what others have a right to: in the metadata labels, annotations, finalizers and owners of theirs, which `differences`
  knows of itself; an account's image pull secrets and tokens, which some distributions add to every account.

docs/kubernetes/operations.md has the same list in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Left:
    """A field that is left alone; with `only` no more than when it has one of these values."""

    only: tuple[Any, ...] | None = None

    def covers(self, value: Any) -> bool:
        """Whether this value may stand."""
        return self.only is None or any(value == one and type(value) is type(one) for one in self.only)


# A name leads to what is left of the field itself, or to the rules for what is in it; "*" to all that have no rule. The
# entries of a list have the list's rules.
Rules = Mapping[str, "Left | Rules"]

ANY = Left()


def _default(*values: Any) -> Left:
    return Left(values)


_PROBE: Rules = {
    "successThreshold": _default(1),
    "initialDelaySeconds": _default(0),
}

_CONTAINER: Rules = {
    "terminationMessagePath": _default("/dev/termination-log"),
    "terminationMessagePolicy": _default("File"),
    "resources": _default({}),
    "startupProbe": _PROBE,
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
}

_TEMPLATE: Rules = {
    "metadata": {"creationTimestamp": ANY},
    "spec": {
        "restartPolicy": _default("Always"),
        "dnsPolicy": _default("ClusterFirst"),
        "schedulerName": _default("default-scheduler"),
        "terminationGracePeriodSeconds": _default(30),
        # The API server keeps it the same as serviceAccountName, whose name of old it is.
        "serviceAccount": ANY,
        "containers": _CONTAINER,
    },
}

_JOB: Rules = {
    "parallelism": _default(1),
    "completions": _default(1),
    "completionMode": _default("NonIndexed"),
    "suspend": _default(False),
    "podReplacementPolicy": _default("TerminatingOrFailed", "Failed"),
    "manualSelector": _default(False),
    "template": _TEMPLATE,
}

SHARED: Mapping[str, Rules] = {
    "CronJob": {"spec": {"jobTemplate": {"metadata": {"creationTimestamp": ANY}, "spec": _JOB}}},
    "StatefulSet": {
        "spec": {
            "revisionHistoryLimit": _default(10),
            # Nobody can change them, we neither.
            "volumeClaimTemplates": {"*": ANY, "metadata": {"*": ANY}, "spec": {"*": ANY}},
            "template": _TEMPLATE,
        }
    },
    "Service": {
        "spec": {
            "type": _default("ClusterIP"),
            "clusterIP": ANY,
            "clusterIPs": ANY,
            "ipFamilies": ANY,
            "ipFamilyPolicy": ANY,
            "sessionAffinity": _default("None"),
            "internalTrafficPolicy": _default("Cluster"),
            "externalTrafficPolicy": _default("Cluster"),
            "allocateLoadBalancerNodePorts": _default(True),
            # Some clouds' webhooks choose it for whoever names none, and nobody can change it afterwards.
            "loadBalancerClass": ANY,
            "ports": {"nodePort": ANY},
        }
    },
    "ServiceAccount": {"secrets": ANY, "imagePullSecrets": ANY},
    "Certificate": {"spec": {"revisionHistoryLimit": _default(1)}},
}
