"""What a broker has deleted it remembers for that order alone."""

from sterna_broker.cluster.deletions import Deletions
from sterna_broker.cluster.upkeep import EngineView, at_stake
from sterna_broker.cluster.view import Stored
from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord, Deleting, Owner
from sterna_resources.reading import from_document
from sterna_resources.resource import Resource

from tests.cluster.conftest import document

_CLAIM = Claim("Queue", "orders")
_MANIFEST = document("Queue", "orders")


class Engine(EngineView):
    """An engine whose queue holds as many messages as it is told."""

    def __init__(self) -> None:
        self.messages_held = 0

    def delete(self, claim: Claim, resource: Resource, *, with_messages: bool) -> int:
        held, self.messages_held = self.messages_held, 0
        return held


def _record(uid: str | None) -> ConfigRecord:
    deleting = None if uid is None else Deleting(policy="delete", uid=uid)
    return ConfigRecord(manifest=_MANIFEST, owner=Owner(by="operator"), deleting=deleting)


def _settled(deletions: Deletions, engine: Engine, uid: str) -> int:
    return deletions.settle(engine, _CLAIM, _record(uid), from_document(_MANIFEST, "test"), "").messages


def test_an_object_that_was_deleted_and_made_again_is_there_again() -> None:
    deletions, engine = Deletions(), Engine()
    engine.messages_held = 3
    assert _settled(deletions, engine, "first") == 3
    # The same order is answered the same way.
    deletions.forget({_CLAIM: Stored(_record("first"), 1, 1)})
    assert _settled(deletions, engine, "first") == 3
    assert _CLAIM in deletions.done
    deletions.forget({_CLAIM: Stored(_record(None), 2, 2)})
    assert _CLAIM not in deletions.done


def test_another_order_is_carried_out_anew() -> None:
    deletions, engine = Deletions(), Engine()
    assert _settled(deletions, engine, "first") == 0
    engine.messages_held = 2
    deletions.forget({_CLAIM: Stored(_record("second"), 3, 3)})
    assert _settled(deletions, engine, "second") == 2
    deletions.forget({})
    assert deletions.done == {}


def test_what_a_topics_deletion_would_destroy_is_what_durables_to_it_hold() -> None:
    statistics = {"messages": 9, "pending_messages": 4, "durable_messages": 3, "durable_pending_messages": 1}
    row = {"statistics": statistics}
    assert [at_stake(kind, row) for kind in ("Topic", "Queue")] == [4, 13]
    assert at_stake("Topic", None) == 0
