"""docs/kubernetes/operator-rights.md: what the operator may do in Kubernetes and why, from the chart's own rules."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tools.fingerprints import ROOT

RULES = "charts/sterna-operator/files/rules.yaml"
PAGE = "docs/kubernetes/operator-rights.md"
INPUTS = ("tools/generate/operator_rights.py", RULES)
OUTPUTS = (PAGE,)

_HEAD = f"""# What the operator may do

Made from `{RULES}`, which the chart's roles are made of. The rules hold in the namespaces
that the operator looks after: with `watchNamespaces` as a Role in each of these, and without as a ClusterRole for all.
There is no wildcard among them, and no right to give rights.

| it may | what | why |
|---|---|---|
"""

_TAIL = """
Beside that it may `get`, `create`, `update` and `patch` leases in its own namespace: the Lease says which of
several operators works.

## By namespace, or for the whole cluster

The [quick start](quickstart.md) names the namespaces: `--set 'watchNamespaces={messaging}'`. The operator then has
a Role in each, and no rights anywhere else; the namespaces have to be there before. More of them: name them all in
another `helm upgrade`, and the operator is restarted with them. Without `watchNamespaces` it looks after every
namespace, those to come included, with a ClusterRole: for a Kubernetes that is Sterna's own, or whose
administrators read the next part.

## What whoever has the operator's token can do

The token is in the operator's pod. Whoever may run a command in that pod, make a pod in its namespace, ask for a
token of its account, or has its node, has these rights. Much of it follows from the table only when one thinks of
it:

- **Run any program as any account.** Who may create StatefulSets, Jobs or CronJobs may have pods made: of any image,
  with any command, under any ServiceAccount of the namespace, with that account's token and so with all its rights,
  and with any Secret, ConfigMap and volume claim of the namespace mounted. Where the namespace does not enforce a
  profile of pod security, with the node's files and devices, too, and that is the node. For the whole cluster
  this includes `kube-system`: **the token of an operator with a ClusterRole is as good as an administrator's of the
  whole cluster.**
- **Read, make and change any Secret** whose name it knows, and by a pod that mounts it as well. Kubernetes cannot
  limit rights to "the Secrets that manifests name". The operator reads by name those that a manifest in the same
  namespace names, watches each of them by name, and never lists; its account could do otherwise.
- **Make, change and delete ServiceAccounts**, those of others among them. It cannot bind a role to one; but one
  that it makes under the name of an account that was deleted has whatever is bound to that name still.
- **Delete and change what is not Sterna's**: StatefulSets, Jobs, CronJobs, Services, ConfigMaps, pods, disruption
  budgets and network policies of the namespace. Deleting network policies opens what they closed; a Service can be
  made to lead elsewhere.
- **Have volumes deleted**, by making a claim belong to something that goes; it may not delete them itself.
- **Have certificates issued** by the issuers of cert-manager that the namespace can use.
- **Do everything with messages**: it decides who the clusters' users are, and what their pods run.

It cannot: make or bind roles, act as somebody else, run commands in pods, list Secrets, touch nodes, definitions,
webhooks or anything in a namespace that it does not look after.

What keeps this small: `watchNamespaces`, with namespaces that hold nothing but Sterna; the label
`pod-security.kubernetes.io/enforce: restricted` on them, which all pods that the operator makes fulfil; and nobody
else in the operator's own namespace.

## What creating a MessagingCluster gives its author

The operator does for the author what the author may not have been allowed to do. Whoever may create or change
MessagingClusters in a namespace, and nothing else, can there

- **run any image** (`image`, `etcd.managed.image`) as the user 65532 without capabilities, under an account to
  which nothing is bound and whose token is not mounted; on nodes of choice (`pod.nodeSelector`, `tolerations`,
  `affinity`), before others (`priorityClassName`), as many as 64 pods with volumes, within the quotas of the
  namespace;
- **read every Secret of the namespace** by its name and key: `tls`, `tls.clientCa` and `etcd` name Secrets, which
  are mounted into pods of an image of the author's choice;
- **have credentials for etcd carried anywhere**, and the operator connect to any address that it can reach, unless
  the operator was given `allowedEtcdEndpoints`: then to those alone;
- **open ways from outside**: Services of the types NodePort and LoadBalancer, with annotations that clouds act
  upon; and put labels on pods by which others' Services and network policies find them;
- **give themselves users and all rights in that cluster**, and let other namespaces in.

They cannot take another cluster's place in etcd: that belongs to its owner's uid, which each transaction of operator
and brokers compares, and one whose owner is known to exist is handed to nobody. An operator knows that in the
namespaces that it looks after; elsewhere the annotation `sterna.dev/accept-store` can take a place over, for whoever
can write to that etcd anyway. Nor is an object of somebody else's overwritten that has the name of one that the
operator would make.

So: let those create MessagingClusters who may create pods and read Secrets in that namespace anyway. The same holds
for **AuditJobs and StoreSnapshots**: their author runs any image (`image`) as the user 65532 without capabilities and
without a token, on nodes of choice, with Secrets and a volume claim of the namespace mounted that the author names; and
while one of their runs goes on, the cluster waits with restarting and removing brokers (docs/kubernetes/audits.md), for
minutes with the one, until a last snapshot or force with the other. Whom the cluster does not let in
(`allowedNamespaces`) it does not wait for. The other kinds (Queue, Topic, Bridge, DurableSubscription, Store,
ConnectionFactory) give nothing but what their cluster lets them have; a User makes one of its password's Secret. But
programs connect to where a ConnectionFactory says, with their passwords: let those write them whom programs trust.
"""


def make(root: Path) -> None:
    """Leaves the page below `root`."""
    file = root / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_HEAD + "\n".join(map(_row, _rules())) + "\n" + _TAIL, encoding="utf-8")


def _rules() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load((ROOT / RULES).read_text("utf-8")))


def _row(rule: dict[str, Any]) -> str:
    groups = "".join(f" of {group}" for group in rule["apiGroups"] if group)
    things = ", ".join(f"`{name}`" for name in rule["resources"])
    return f"| {', '.join(rule['verbs'])} | {things}{groups} | {rule['reason']} |"
