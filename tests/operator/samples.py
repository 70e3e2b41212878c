"""One object of each kind of a topology, for tests of what is promised for all of them."""

from dataclasses import dataclass, field
from typing import Any

from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord, Credential, Owner, UserRecord
from sterna_resources.kinds import TOPOLOGY_KINDS
from sterna_resources.reading import from_object
from sterna_resources.topology import TopologyResource

from tests.operator.worlds import API, World

ADMIN = Owner(by="admin")
SECRET = "a-password"
# What no password is hashed to: whoever has this was given it by somebody else.
_FOREIGN_HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$c29tZWhhc2g"


@dataclass(frozen=True)
class Sample:
    """`spec`: of an object that needs nothing but what `stage` makes. `changed`: what of it may become another."""

    kind: str
    spec: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)

    def claim(self, name: str) -> str:
        """The name in the brokers of an object with this name."""
        return self._resource(name).claim

    def record(self, name: str, owner: Owner = ADMIN) -> ConfigRecord | UserRecord:
        """What would stand in etcd if somebody else had made it."""
        if self.kind == "User":
            return UserRecord(credentials=[Credential(argon2=_FOREIGN_HASH)], owner=owner)
        return ConfigRecord(manifest=self._resource(name).broker_document(), owner=owner)

    def key(self, world: World, name: str) -> str:
        """Where that stands."""
        claim = self.claim(name)
        return world.layout.user(claim) if self.kind == "User" else world.layout.config(Claim(self.kind, claim))

    async def standing(self, world: World, name: str) -> ConfigRecord | UserRecord | None:
        """What stands there; None: nothing."""
        key = self.key(world, name)
        found = (await world.client.get(key)).found
        if found is None:
            return None
        record = UserRecord if self.kind == "User" else ConfigRecord
        return record.decode(key, found.value)

    def _resource(self, name: str) -> TopologyResource:
        spec = {"clusterRef": {"name": "mq"}, **self.spec}
        resource = from_object({"apiVersion": API, "kind": self.kind, "metadata": {"name": name}, "spec": spec})
        assert isinstance(resource, TopologyResource)
        return resource


SAMPLES = {
    one.kind: one
    for one in (
        Sample("Queue", {}, {"maxMessages": 2}),
        Sample("Topic", {}, {"maxMessages": 2}),
        Sample(
            "Bridge",
            {"source": {"queue": "from"}, "targets": [{"queue": "to"}]},
            {"targets": [{"queue": "to", "selector": "a = 1"}]},
        ),
        # Nothing of a subscription that brokers know can be changed.
        Sample("DurableSubscription", {"topic": "news", "clientId": "app"}),
        Sample("Store", {}, {"quotaBytes": 1_000_000}),
        Sample("ConnectionFactory", {"url": "sterna://a:7222"}, {"url": "sterna://b:7222"}),
        Sample("User", {"passwordSecret": {"name": SECRET}}),
    )
}
assert SAMPLES.keys() == TOPOLOGY_KINDS.keys()


async def stage(world: World) -> None:
    """What the samples refer to; a double of a broker is there already."""
    world.secret(SECRET, "one")
    for kind, name in (("Queue", "from"), ("Queue", "to"), ("Topic", "news")):
        world.apply(kind, name, {})
        await world.ready(kind, name)
