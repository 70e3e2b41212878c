"""Stories about an operator that may die at any moment, and what is left at their ends.

A `Tale` tells one: it has a namespace and a cluster's name of its own, an operator that kills itself after so many
writes, and another one that is started then. At each `checkpoint` everything that the operator is answerable for is
written down: every object of the API server, and every key of the cluster in etcd, without what has to differ from one
telling to the next.
"""

import asyncio
import base64
import json
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sterna_etcd import Etcd
from sterna_operator.builders.blueprint import SECRETS_ANNOTATION, SETTINGS_ANNOTATION
from sterna_operator.kube import path

from tests.etcds import RunningEtcd
from tests.operator.broker_double import patient
from tests.operator.launching import told_apart
from tests.operator.lookouts import KINDS, Lookout, Object
from tests.operator.operators import RunningOperator
from tests.operator.worlds import API, World
from tests.support.api_server import ApiServer

TIMEOUT_S = 90.0
# The exit status of an operator that has found another one in the lead.
OTHER_LEADS = 3
# Something that no object shows may have come true meanwhile: the operator's end, or a key of etcd.
_LOOK_S = 0.1
# So long an operator that nobody disturbs has nothing more to write before its work counts as done.
_QUIET_S = 1.5

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(rf"({_UID.pattern}/\d+)#[0-9a-f]+")
_HASH = re.compile(r"(tls-)?[0-9a-f]{16}")
# What Kubernetes or time gives out.
_FIELDS_ASIDE = {
    "creationTimestamp",
    "deletionTimestamp",
    "resourceVersion",
    "lastTransitionTime",
    "startTime",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "appliedRevision",
    "applied_revision",
    "created_ms",
    "started_ms",
    "argon2",
    "not_after_ms",
    "etcdId",
    "etcdRevision",
    # The hash of what a pod mounts has the ports in it that Kubernetes gave out; the stories look at it themselves.
    SECRETS_ANNOTATION,
}

Ending = dict[str, Any]


class Tale:
    """One telling. `expected`: what the checkpoints are to be like; None: whatever they are.

    `fatal`: the write, and how often it has to be made, after which the operator dies, or with `is_freezing` is frozen
    while another one stands by; None: nothing happens to it. `kubeconfig`: how the operator reaches the server, the
    usual way when absent.
    """

    def __init__(
        self,
        server: ApiServer,
        store: RunningEtcd,
        lookout: Lookout,
        folder: Path,
        *,
        fatal: tuple[str, int] | None = None,
        is_freezing: bool = False,
        expected: Mapping[str, Ending] | None = None,
        kubeconfig: Path | None = None,
        **flags: Any,
    ) -> None:
        self.world = World(server, store.urls)
        self._etcd = Etcd(patient(store.urls))
        self.lookout = lookout
        self.deaths = 0
        self.freezes = 0
        self.endings: dict[str, Ending] = {}
        self.victim = ""
        self.look_after: Callable[[], None] = lambda: None
        """Called again and again: raises when somebody who belongs to the story has failed."""

        self.note: Callable[[], Mapping[str, Any]] = dict
        """What else endings are to be alike in."""

        self._fatal = fatal
        self._expected = expected
        self._generations: dict[tuple[str, str], int] = {}
        self._changed = lookout.listen(self.world.namespace)
        operators = [
            RunningOperator(
                folder / self.world.namespace / name,
                kubeconfig or server.kubeconfig,
                namespaces=[self.world.namespace],
                lease_namespace=self.world.namespace,
                **{"lease_duration_s": 30.0, **flags},
            )
            for name in ("first", "second")
        ]
        self.operator = operators[0]
        self._standby = operators[1] if is_freezing else None
        self._frozen: RunningOperator | None = None
        self._is_woken = False

    def begin(self) -> None:
        """Starts the operator."""
        self.operator.launch(self._fatal, freezes=self._standby is not None)

    async def finish(self) -> None:
        """The story is at its end: who is still frozen wakes, ends because it leads no more, and changes nothing."""
        # Whoever belonged to it is gone.
        self.look_after = lambda: None
        if self._frozen is None:
            return
        if not self._is_woken:
            # Nothing was left to be written: one that wakes before its time is up leads on, and rightly.
            await self.until(self._standby_leads, "the standby to lead")
        self._wake(self._frozen)
        assert await asyncio.to_thread(self._frozen.wait, TIMEOUT_S) == OTHER_LEADS, self._frozen.log[-3000:]
        await self.checkpoint([*self.endings][-1])

    async def close(self) -> None:
        """Ends the operator, and removes what would burden the server: the ports of Services are few."""
        for one in (self.operator, self._standby, self._frozen):
            if one is not None:
                one.stop()
        namespace = self.world.namespace
        self.lookout.forget(namespace)
        for kind in ("Service", "Pod"):
            self.world.server.request("DELETE", path("v1", kind, namespace), {"gracePeriodSeconds": 0})
        await self._etcd.close()
        await self.world.close()

    @property
    def log(self) -> str:
        """What the operators have said last, and what the cluster and its pods show."""
        said = self.operator.log[-3000:]
        if self._frozen is not None:
            said += f"\nand the one that was frozen:\n{self._frozen.log[-3000:]}"
        shown = [
            {"kind": one["kind"], "metadata": one["metadata"], "status": one.get("status")}
            for one in self.everything()
            if one["kind"] in ("MessagingCluster", "Pod")
        ]
        return f"{said}\nand the objects say:\n{json.dumps(shown)}"

    # What people do

    def apply(self, kind: str, name: str, **spec: Any) -> None:
        """Makes or changes an object of ours."""
        made = self.world.apply(kind, name, spec)
        self._generations[kind, name] = made["metadata"]["generation"]

    def cluster(self, **spec: Any) -> None:
        """Makes or changes the cluster; its etcd is the test's unless `spec` says otherwise."""
        self.apply("MessagingCluster", "mq", **{"etcd": {"endpoints": self.world.etcd_urls.split(",")}, **spec})

    # Looking

    def get(self, kind: str, name: str) -> Object | None:
        """An object; None: there is none."""
        return self.lookout.get(self.world.namespace, kind, name)

    def uid(self, kind: str, name: str) -> str:
        """Which object of that name it is; empty: there is none."""
        return str((self.get(kind, name) or {"metadata": {"uid": ""}})["metadata"]["uid"])

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind."""
        return self.lookout.of(self.world.namespace, kind)

    def everything(self) -> list[Object]:
        """All objects."""
        return self.lookout.all(self.world.namespace)

    def mounted(self) -> set[str]:
        """The hashes of what pods have mounted."""
        return {one["metadata"].get("annotations", {}).get(SECRETS_ANNOTATION, "") for one in self.of("Pod")}

    def messages(self) -> int:
        """How many messages the cluster's status speaks of."""
        said = (self.get("MessagingCluster", "mq") or {}).get("status", {}).get("brokers", ())
        return sum(one.get("messages", 0) for one in said)

    def ready(self, kind: str, name: str) -> dict[str, Any]:
        """The Ready condition of the generation that was applied last; empty: there is none yet."""
        found = self.get(kind, name)
        wanted = self._generations.get((kind, name), 0)
        if found is None or found["metadata"]["generation"] < wanted:
            return {}
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == "Ready" and one.get("observedGeneration") == found["metadata"]["generation"]:
                return dict(one)
        return {}

    def is_seen(self, kind: str, name: str, reason: str) -> bool:
        """Whether the generation that was applied last was looked at, and Ready has this reason, of whichever it is."""
        found = self.get(kind, name)
        if found is None or found["metadata"]["generation"] < self._generations.get((kind, name), 0):
            return False
        status = found.get("status", {})
        said = {(one["type"], one["reason"]) for one in status.get("conditions", ())}
        return status.get("observedGeneration") == found["metadata"]["generation"] and ("Ready", reason) in said

    def is_ready(self, kind: str, name: str) -> bool:
        """Whether it is ready in the generation that was applied last."""
        return self.ready(kind, name).get("status") == "True"

    async def until(self, check: Callable[[], Any], what: str) -> None:
        """Waits, and starts another operator when the first one has died."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    self._changed.clear()
                    self.look_after()
                    self._look_after_operator()
                    found = check()
                    if await found if asyncio.iscoroutine(found) else found:
                        return
                    await self._pause()
        except TimeoutError as error:
            raise AssertionError(f"{what}: did not come true within {TIMEOUT_S} s") from error

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._changed.wait()
        except TimeoutError:
            return

    def _wake(self, frozen: RunningOperator) -> None:
        if not self._is_woken:
            self._is_woken = True
            frozen.signal(signal.SIGCONT)

    def _look_after_two(self, standby: RunningOperator) -> None:
        """The standby comes once the first one leads, takes over when that is frozen, and has it beside itself then."""
        if standby.process is None:
            if self.operator.writes:
                standby.launch()
        elif self._frozen is None:
            if self.operator.is_frozen:
                self.freezes += 1
                self.victim = self.writes()[-1]
                self._frozen, self.operator = self.operator, standby
        elif standby.writes:
            self._wake(self._frozen)

    def _standby_leads(self) -> bool:
        standby = self._standby
        if standby is None or not standby.is_ready():
            return False
        lease = self.world.server.request("GET", self._lease).body
        return bool(lease["spec"]["holderIdentity"] == standby.ready["identity"])

    @property
    def _lease(self) -> str:
        return path("coordination.k8s.io/v1", "Lease", self.world.namespace, "sterna-operator")

    def _look_after_operator(self) -> None:
        if self._standby is not None:
            self._look_after_two(self._standby)
        if not self.operator.has_ended:
            return
        status = self.operator.wait()
        if self._standby is not None and self._frozen is None and status == OTHER_LEADS:
            # A slow machine: it did not renew its Lease in time before it was to freeze, and is followed, rightly.
            self.operator, self._standby = self._standby, None
            return
        assert status == -9, self.operator.log[-3000:]
        self.deaths += 1
        self.victim = self.writes()[-1]
        self.world.end_lead()
        self.operator.launch()

    # What is left

    async def checkpoint(self, name: str) -> None:
        """Writes down what there is: once it is as expected, or once an operator that nobody expects has done all."""
        if self._expected is None:
            await self._quiet()
            self.endings[name] = await self.ending()
            return
        expected = self._expected[name]

        async def is_alike() -> bool:
            self.endings[name] = await self.ending()
            return self.endings[name] == expected

        try:
            await self.until(is_alike, name)
        except AssertionError as error:
            raise AssertionError(f"{name}:\n{differences(expected, self.endings[name])}") from error

    async def _quiet(self) -> None:
        clock = asyncio.get_running_loop().time
        quiet_s, count, looked = 0.0, -1, clock()
        while quiet_s < _QUIET_S:
            self._changed.clear()
            await self._pause()
            # While the whole machine stalls, the operator cannot write either: that is no quiet.
            quiet_s += min(clock() - looked, 2 * _LOOK_S)
            looked = clock()
            if len(self.operator.writes) != count:
                quiet_s, count = 0.0, len(self.operator.writes)

    async def ending(self) -> Ending:
        """Every object that an operator may make or change, and every key in etcd, as far as tellings are alike."""
        names, ports = {}, {}
        for one in self.of("StatefulSet"):
            # A hash of settings, in some of which there is the namespace.
            annotations = one["spec"]["template"]["metadata"].get("annotations", {})
            if SETTINGS_ANNOTATION in annotations:
                names[annotations[SETTINGS_ANNOTATION]] = f"the settings of {one['metadata']['name']}"
        for one in self.lookout.all(self.world.namespace):
            # A status may say which version of a Secret was taken.
            names[f"{one['metadata']['uid']}/{one['metadata']['resourceVersion']}"] = "the present"
            label = f"{one['kind']} {one['metadata']['name']}"
            names[one["metadata"]["uid"]] = label
            for port in one.get("spec", {}).get("ports", ()) if one["kind"] == "Service" else ():
                ports[str(port.get("nodePort"))] = label
        found: Ending = {"noted": dict(self.note())}
        for one in self.lookout.all(self.world.namespace):
            found[f"{one['kind']} {one['metadata']['name']}"] = self._alike(_slim(one), names, ports)
        for pair in (await self._etcd.list_all(self.world.layout.prefix)).values:
            key = pair.key.removeprefix(self.world.layout.prefix)
            if key.startswith("witnesses/") or key in ("identity", "operator/epoch"):
                # Which store it is, and how often operators have started, is what tellings differ in.
                found[f"etcd {key}"] = "some"
                continue
            found[f"etcd {key}"] = self._alike(json.loads(pair.value), names, ports)
        return found

    def _alike(self, value: Any, names: Mapping[str, str], ports: Mapping[str, str]) -> Any:
        if isinstance(value, Mapping):
            return {key: "…" if key in _FIELDS_ASIDE else self._alike(one, names, ports) for key, one in value.items()}
        if isinstance(value, list):
            return [self._alike(one, names, ports) for one in value]
        if not isinstance(value, str):
            return value
        if _HASH.fullmatch(value):
            return f"<{names.get(value, 'other settings')}>"
        text = re.sub(rf"\b{self.world.namespace}\b", "<namespace>", value)
        text = _VERSION.sub(lambda match: f"<{names.get(match[1], 'an old')} version>", text)
        text = _UID.sub(lambda match: f"<uid of {names.get(match[0], 'something that is gone')}>", text)
        return re.sub(r"(?<=:)3\d{4}\b", lambda match: f"<port of {ports.get(match[0])}>", text)

    def writes(self) -> list[str]:
        """All that the latest operator has written."""
        return [told_apart(one, self.world.namespace) for one in self.operator.writes]


def check_followed(writes: list[str]) -> None:
    """An operator's writes concern nothing but what endings show, and events."""
    followed = [path(version, kind, "any").replace("/any/", "/<namespace>/") for version, kind in KINDS]
    for one in writes:
        where = one.rpartition(" ")[2]
        assert one == "an event" or where.startswith(("/sterna/", *followed)), f"nobody looks at {one}"


def differences(expected: Any, found: Any, where: str = "") -> str:
    """What is otherwise, field by field."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        keys = sorted({*expected, *found})
        lines = [differences(expected.get(key), found.get(key), f"{where}  {key}") for key in keys]
        return "\n".join(line for line in lines if line)
    return "" if expected == found else f"{where}: expected {json.dumps(expected)}, found {json.dumps(found)}"


def _slim(object: Object) -> Object:
    metadata = {key: value for key, value in object["metadata"].items() if key != "uid"}
    if object["apiVersion"] != API:
        # How often a child was applied depends on when the operator looked.
        metadata.pop("generation", None)
    slim = {**object, "metadata": metadata}
    if object["kind"] == "Secret":
        slim["data"] = {key: base64.b64decode(value).decode() for key, value in object.get("data", {}).items()}
        if object["type"] == "kubernetes.io/tls":
            # Keys are drawn anew by each operator that makes one.
            slim["data"] = dict.fromkeys(slim["data"], "some")
    if object["kind"] == "Pod":
        # A pod's other fields are those of its template, with what the server adds.
        containers = [{"name": one["name"], "image": one["image"]} for one in object["spec"]["containers"]]
        slim["spec"] = {"containers": containers, "volumes": [one["name"] for one in object["spec"]["volumes"]]}
    return slim
