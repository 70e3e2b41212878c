"""What the topology kinds decide, as a pure function: no cluster, no clock, no I/O."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sterna_etcd.records import ConfigRecord, Deleting, ObjectStatus, Owner
from sterna_operator import conditions
from sterna_operator.keys import Key
from sterna_operator.kinds import placed
from sterna_operator.kinds.references import Needs, matches, missing
from sterna_operator.kinds.topology import ClusterSeen, Desired, Observed, differences, gone, plan
from sterna_operator.kube import STERNA_API
from sterna_operator.mirror import Kept
from sterna_operator.plans import FINALIZER, AddFinalizer, Plan, PutConfig, RemoveConfig, RemoveFinalizer, Step
from sterna_operator.reasons import Reason
from sterna_resources.reading import from_object
from sterna_resources.topology import TopologyResource

NOW = 1_800_000_000_000
CLUSTER = ClusterSeen("MessagingCluster ns/mq", brokers=frozenset({"b-0", "b-1"}))


def queue(**spec: Any) -> Desired:
    """A queue `orders` of generation 2."""
    document = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "orders", "namespace": "ns"},
        "spec": {"clusterRef": {"name": "mq"}, **spec},
    }
    resource = from_object(document)
    assert isinstance(resource, TopologyResource)
    return Desired(Key("Queue", "ns", "orders"), "uid-1", 2, resource)


def record(desired: Desired, **changes: Any) -> Kept[ConfigRecord]:
    """The record that stands when all is well, at revision 7."""
    made = ConfigRecord(manifest=desired.resource.broker_document(), owner=desired.owner, generation=desired.generation)
    return Kept(made.model_copy(update=changes), 7)


def said(desired: Desired, state: str, **more: Any) -> ObjectStatus:
    """A broker's word of this generation."""
    return ObjectStatus.model_validate({"uid": desired.uid, "generation": desired.generation, "state": state, **more})


def reason(made: Plan) -> str:
    assert made.status is not None
    return made.status.conditions[0].reason


def status_of(made: Plan) -> Mapping[str, str]:
    assert made.status is not None
    return {one.type: one.status for one in made.status.conditions}


def kinds_of(made: Plan) -> list[type[Step]]:
    return [type(step) for step in made.steps]


def test_a_new_queue_is_written_and_not_ready_yet() -> None:
    desired = queue()
    made = plan(desired, Observed(NOW, CLUSTER))
    [step] = made.steps
    assert isinstance(step, PutConfig)
    assert step.revision == 0
    assert step.record == record(desired).record
    assert status_of(made) == {"Ready": "False", "Reconciling": "True", "Stalled": "False"}


def test_the_finalizer_is_set_before_there_is_anything_to_delete() -> None:
    made = plan(queue(deletionPolicy="delete"), Observed(NOW, CLUSTER))
    assert kinds_of(made) == [AddFinalizer, PutConfig]


def test_ready_needs_a_brokers_word_on_this_very_generation() -> None:
    desired = queue()
    standing = Observed(NOW, CLUSTER, config=record(desired))
    assert reason(plan(desired, standing)) == "Applying"
    old = said(replace(desired, generation=1), "applied")
    assert reason(plan(desired, replace(standing, statuses={"b-0": old}))) == "Applying"
    other = said(replace(desired, uid="uid-0"), "applied")
    assert reason(plan(desired, replace(standing, statuses={"b-0": other}))) == "Applying"
    made = plan(desired, replace(standing, statuses={"b-0": said(desired, "applied", home="b-0")}))
    assert made.steps == ()
    assert status_of(made) == {"Ready": "True", "Reconciling": "False", "Stalled": "False"}


def test_a_home_that_was_asked_for_too_late_is_said_and_keeps_it_ready() -> None:
    def message(broker: str) -> str:
        desired = queue(broker=broker)
        standing = Observed(
            NOW, CLUSTER, config=record(desired), statuses={"b-0": said(desired, "applied", home="b-0")}
        )
        made = plan(desired, standing)
        assert status_of(made)["Ready"] == "True"
        assert made.status is not None
        return next(one.message for one in made.status.conditions if one.type == "Ready")

    assert message("b-0") == "lives on broker b-0"
    assert "spec.broker names b-1" in message("b-1")
    assert "moves nothing" in message("b-1")


def test_what_every_broker_has_needs_every_brokers_word() -> None:
    desired = queue()
    standing = Observed(NOW, CLUSTER, config=record(desired))
    one = replace(standing, statuses={"b-0": said(desired, "applied")})
    assert reason(plan(desired, one, everywhere=True)) == "Applying"
    both = replace(standing, statuses={name: said(desired, "applied") for name in ("b-0", "b-1")})
    assert reason(plan(desired, both, everywhere=True)) == "Applied"


def test_a_refusal_by_a_broker_that_is_gone_does_not_count() -> None:
    desired = queue()
    refused = said(desired, "refused", message="no")
    standing = Observed(NOW, CLUSTER, config=record(desired), statuses={"b-9": refused})
    assert reason(plan(desired, standing)) == "Applying"
    assert reason(plan(desired, replace(standing, statuses={"b-1": refused}))) == "Refused"


def test_an_older_copy_of_the_object_does_not_undo_a_newer_record() -> None:
    desired = queue(maxMessages=1)
    newer = record(desired, generation=3, manifest={"spec": {"maxMessages": 2}})
    assert plan(desired, Observed(NOW, CLUSTER, config=newer)).steps == ()


@pytest.mark.parametrize(
    ("adoption", "steps", "why"), [("fail", 0, "NameClaimed"), ("adopt", 1, "Applying"), ("observe", 0, "Observed")]
)
def test_an_administrators_object(adoption: str, steps: int, why: str) -> None:
    desired = queue(adoption=adoption)
    standing = record(desired, owner=Owner(by="admin"))
    made = plan(desired, Observed(NOW, CLUSTER, config=standing))
    assert len(made.steps) == steps
    assert reason(made) == why


@pytest.mark.parametrize("adoption", ["fail", "adopt", "observe"])
def test_another_object_of_kubernetes_is_never_robbed(adoption: str) -> None:
    desired = queue(adoption=adoption)
    theirs = record(desired, owner=Owner(by="operator", namespace="other", name="orders", uid="u"))
    made = plan(desired, Observed(NOW, CLUSTER, config=theirs))
    assert made.steps == ()
    assert reason(made) == "NameClaimed"
    assert "other/orders" in made.announcements[0].message


def test_its_own_predecessor_is_followed() -> None:
    desired = queue()
    before = record(desired, owner=Owner(by="operator", namespace="ns", name="orders", uid="uid-0"))
    assert kinds_of(plan(desired, Observed(NOW, CLUSTER, config=before))) == [PutConfig]


def test_a_record_that_vanished_is_no_stranger_although_brokers_have_the_queue() -> None:
    desired = replace(queue(), status={"home": "b-0", "observedGeneration": 2})
    made = plan(desired, Observed(NOW, CLUSTER, home="b-0"))
    assert kinds_of(made) == [PutConfig]
    assert made.announcements[0].reason.name == "DriftRepaired"
    assert reason(plan(queue(), Observed(NOW, CLUSTER, home="b-0"))) == "Exists"


def test_etcd_away_leaves_what_is_ready_ready() -> None:
    away = replace(CLUSTER, fault=("EtcdUnavailable", "no answer"))
    ready = [{"type": "Ready", "status": "True", "observedGeneration": 2, "reason": "Applied", "message": ""}]
    assert plan(replace(queue(), status={"conditions": ready}), Observed(NOW, away)) == Plan()
    assert reason(plan(queue(), Observed(NOW, away))) == "EtcdUnavailable"


def test_a_paused_object_is_ready_for_the_generation_that_was_applied_and_no_later_one() -> None:
    """Whoever waits for Ready in the present generation goes on waiting: nobody has applied it."""
    before = conditions.written(conditions.ready(), (), 1, NOW)
    for generation in (2, 3):
        desired = replace(queue(paused={}), generation=generation, status={"conditions": before})
        made = plan(desired, Observed(NOW, CLUSTER))
        assert made.status is not None
        before = conditions.written(made.status.conditions, before, generation, NOW)
        of = {one["type"]: (one["status"], one["observedGeneration"]) for one in before}
        assert of == {"Ready": ("True", 1), "Reconciling": ("False", generation), "Stalled": ("False", generation)}
        assert "generation 1 is applied" in before[0]["message"]


def test_a_pause_with_an_end_looks_again_when_it_ends() -> None:
    until = conditions.timestamp(NOW + 5_000)
    made = plan(queue(paused={"until": until}), Observed(NOW, CLUSTER))
    assert made.steps == ()
    assert made.again_s == pytest.approx(5.0)
    assert kinds_of(plan(queue(paused={"until": until}), Observed(NOW + 5_000, CLUSTER))) == [PutConfig]


class TestDeletion:
    """A queue that is being deleted, with our finalizer."""

    def desired(self, policy: str) -> Desired:
        return replace(queue(deletionPolicy=policy), is_deleting=True, has_finalizer=True)

    @pytest.mark.parametrize(
        "cluster",
        [
            replace(CLUSTER, is_there=False),
            replace(CLUSTER, is_going=True),
            replace(CLUSTER, allows=False),
        ],
    )
    def test_without_its_cluster_it_is_let_go(self, cluster: ClusterSeen) -> None:
        desired = self.desired("delete")
        made = plan(desired, Observed(NOW, cluster, config=record(desired)))
        assert kinds_of(made) == [RemoveFinalizer]

    def test_brokers_are_told_then_waited_for_then_it_goes(self) -> None:
        desired = self.desired("delete")
        told = plan(desired, Observed(NOW, CLUSTER, config=record(desired)))
        [step] = told.steps
        assert isinstance(step, PutConfig)
        assert step.record.deleting == Deleting(policy="delete", uid="uid-1")
        standing = Observed(NOW, CLUSTER, config=Kept(step.record, 8))
        assert plan(desired, standing).steps == ()
        done = replace(standing, statuses={"b-0": said(desired, "deleted")})
        assert kinds_of(plan(desired, done)) == [RemoveConfig, RemoveFinalizer]

    @pytest.mark.parametrize(
        ("kind", "count", "words"),
        [
            ("Queue", None, "with its messages"),
            ("Queue", 0, "with its messages (0 messages when they were last counted)"),
            ("Queue", 3, "with its messages (3 messages when they were last counted)"),
            ("DurableSubscription", None, "with its messages"),
            ("DurableSubscription", 0, "with its messages (0 messages when they were last counted)"),
            ("DurableSubscription", 3, "with its messages (3 messages when they were last counted)"),
        ],
    )
    def test_it_says_what_goes_as_far_as_that_was_counted(self, kind: str, count: int | None, words: str) -> None:
        desired = self.desired("delete")
        if kind == "DurableSubscription":
            document = {
                "apiVersion": "sterna.dev/v1alpha1",
                "kind": kind,
                "metadata": {"name": "audit", "namespace": "ns"},
                "spec": {"clusterRef": {"name": "mq"}, "topic": "t", "clientId": "c", "deletionPolicy": "delete"},
            }
            resource = from_object(document)
            assert isinstance(resource, TopologyResource)
            desired = replace(desired, key=Key(kind, "ns", "audit"), resource=resource)
        statuses = {} if count is None else {"b-0": said(desired, "applied", home="b-0", messages=count)}
        made = plan(desired, Observed(NOW, CLUSTER, config=record(desired), statuses=statuses))
        [announcement] = made.announcements
        assert announcement.message.endswith(words)
        assert made.status is not None
        assert made.status.conditions[0].message.endswith(words)

    def test_blocked_says_how_many(self) -> None:
        desired = self.desired("onlyIfEmpty")
        order = Deleting(policy="onlyIfEmpty", uid="uid-1")
        standing = Observed(NOW, CLUSTER, config=record(desired, deleting=order))
        made = plan(desired, replace(standing, statuses={"b-0": said(desired, "blocked", messages=4)}))
        assert made.steps == ()
        assert made.status is not None
        assert made.status.fields["messages"] == 4
        assert reason(made) == "DeletionBlocked"

    def test_what_several_brokers_have_goes_when_none_of_them_is_held_up(self) -> None:
        desired = self.desired("onlyIfEmpty")
        order = Deleting(policy="onlyIfEmpty", uid="uid-1")
        standing = Observed(NOW, CLUSTER, config=record(desired, deleting=order))
        words = {"b-0": said(desired, "deleted"), "b-1": said(desired, "blocked", message="the Queue a needs it")}
        made = plan(desired, replace(standing, statuses=words))
        assert made.steps == ()
        assert made.status is not None
        assert "the Queue a needs it" in made.status.conditions[0].message
        both = {broker: said(desired, "deleted") for broker in words}
        assert kinds_of(plan(desired, replace(standing, statuses=both))) == [RemoveConfig, RemoveFinalizer]

    def test_a_changed_policy_is_passed_on(self) -> None:
        desired = self.desired("delete")
        order = Deleting(policy="onlyIfEmpty", uid="uid-1")
        made = plan(desired, Observed(NOW, CLUSTER, config=record(desired, deleting=order)))
        [step] = made.steps
        assert isinstance(step, PutConfig)
        assert step.record.deleting == Deleting(policy="delete", uid="uid-1")

    @pytest.mark.parametrize("policy", ["delete", "onlyIfEmpty"])
    def test_a_namespace_that_goes_is_never_held_up_for_long(self, policy: str) -> None:
        desired = self.desired(policy)
        order = Deleting.model_validate({"policy": policy, "uid": "uid-1"})
        standing = Observed(NOW, CLUSTER, config=record(desired, deleting=order), namespace_is_going=True)
        assert RemoveFinalizer in kinds_of(plan(desired, standing))
        away = replace(standing, cluster=replace(CLUSTER, fault=("EtcdUnavailable", "no answer")))
        assert RemoveFinalizer in kinds_of(plan(desired, away))

    def test_somebody_elses_record_is_not_touched(self) -> None:
        desired = self.desired("delete")
        made = plan(desired, Observed(NOW, CLUSTER, config=record(desired, owner=Owner(by="admin"))))
        assert kinds_of(made) == [RemoveFinalizer]

    def test_without_our_finalizer_there_is_nothing_to_do(self) -> None:
        desired = replace(self.desired("delete"), has_finalizer=False)
        assert plan(desired, Observed(NOW, CLUSTER, config=record(desired))) == Plan()

    def test_what_is_left_of_an_object_that_is_gone(self) -> None:
        desired = queue()
        assert kinds_of(gone(desired.claim, record(desired), {})) == [RemoveConfig]
        ordered = record(desired, deleting=Deleting(policy="delete", uid="uid-1"))
        assert gone(desired.claim, ordered, {}).steps == ()
        assert kinds_of(gone(desired.claim, ordered, {"b-0": said(desired, "deleted")})) == [RemoveConfig]


# Whatever the world looks like, some things hold.

_STATES = st.sampled_from(["applied", "refused", "deleted", "blocked", "elsewhere"])
_OWNERS = st.sampled_from(
    [
        Owner(by="admin"),
        Owner(by="operator", namespace="ns", name="orders", uid="uid-1"),
        Owner(by="operator", namespace="ns", name="orders", uid="uid-0"),
        Owner(by="operator", namespace="other", name="x", uid="u"),
    ]
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Desired, Observed]:
    """An object and what may be observed around it."""
    policy = draw(st.sampled_from(["retain", "delete", "onlyIfEmpty"]))
    adoption = draw(st.sampled_from(["fail", "adopt", "observe"]))
    desired = replace(
        queue(deletionPolicy=policy, adoption=adoption, maxMessages=draw(st.integers(0, 2))),
        is_deleting=draw(st.booleans()),
        has_finalizer=draw(st.booleans()),
        status=draw(st.sampled_from([{}, {"home": "b-0", "observedGeneration": 2}])),
    )
    config = None
    if draw(st.booleans()):
        deleting = draw(
            st.sampled_from([None, Deleting(policy="delete", uid="uid-1"), Deleting(policy="onlyIfEmpty", uid="uid-1")])
        )
        config = record(desired, owner=draw(_OWNERS), deleting=deleting, generation=draw(st.integers(1, 3)))
    speakers = draw(st.lists(st.sampled_from(["b-0", "b-1", "b-9"]), unique=True))
    statuses = {}
    for broker in speakers:
        about = replace(desired, generation=draw(st.integers(1, 2)), uid=draw(st.sampled_from(["uid-1", "uid-0"])))
        statuses[broker] = said(about, draw(_STATES), messages=draw(st.integers(0, 2)))
    cluster = replace(
        CLUSTER,
        is_there=draw(st.booleans()) or draw(st.booleans()),
        is_going=draw(st.booleans()) and draw(st.booleans()),
        allows=draw(st.booleans()) or draw(st.booleans()),
        fault=draw(st.sampled_from([None, None, ("EtcdUnavailable", "no answer")])),
        brokers=draw(st.sampled_from([frozenset(), frozenset({"b-0"}), frozenset({"b-0", "b-1"})])),
    )
    observed = Observed(
        NOW,
        cluster,
        config=config,
        statuses=statuses,
        home=draw(st.sampled_from([None, "b-0"])),
        holder_is_there=draw(st.booleans()),
        namespace_is_going=draw(st.booleans()),
    )
    return desired, observed


@given(worlds())
def test_a_plan_never_robs_never_contradicts_itself_and_settles(world: tuple[Desired, Observed]) -> None:
    desired, observed = world
    made = plan(desired, observed)
    owner = observed.config.record.owner if observed.config else None
    adopts = desired.resource.spec.adoption == "adopt"
    for step in made.steps:
        if isinstance(step, PutConfig | RemoveConfig):
            # Nothing of somebody else's is written or removed, and never something that was not seen.
            assert owner is None or owner.by == "operator" or adopts
            assert owner is None or owner.by == "admin" or (owner.namespace, owner.name) == ("ns", "orders")
            assert step.revision == (observed.config.revision if observed.config else 0)
            assert observed.cluster.fault is None
        if isinstance(step, RemoveFinalizer):
            assert desired.has_finalizer
        if isinstance(step, AddFinalizer):
            assert not desired.has_finalizer
            assert not desired.is_deleting
    if made.status is not None and status_of(made)["Ready"] == "True":
        assert status_of(made) == {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
        assert not made.steps or kinds_of(made) == [RemoveFinalizer] or kinds_of(made) == [AddFinalizer]
    # Done once, the same plan does not come again: no object is written for ever.
    after = _done(desired, observed, made)
    again = plan(*after)
    assert not [step for step in again.steps if isinstance(step, PutConfig | AddFinalizer)]


def _done(desired: Desired, observed: Observed, made: Plan) -> tuple[Desired, Observed]:
    """The world once the steps of a plan are done."""
    for step in made.steps:
        match step:
            case AddFinalizer():
                desired = replace(desired, has_finalizer=True)
            case RemoveFinalizer():
                desired = replace(desired, has_finalizer=False)
            case PutConfig():
                observed = replace(observed, config=Kept(step.record, 99))
            case RemoveConfig():
                observed = replace(observed, config=None, statuses={})
    return desired, observed


class TestReferences:
    """What an object needs and what is there."""

    class There:
        """A cluster with some objects."""

        def __init__(self, **claims: list[str]) -> None:
            self._claims = claims

        def claims(self, kind: str) -> list[str]:
            return self._claims.get(kind, [])

    def test_an_entry_a_pattern_or_nothing(self) -> None:
        there = self.There(Queue=["orders", "any.>"], Topic=["prices.*"])
        needs = Needs(destinations=(("Queue", "orders"), ("Queue", "any.a.b"), ("Topic", "prices.x"), ("Topic", "p.>")))
        assert missing(there, needs) == ()
        needs = Needs(destinations=(("Queue", "other"), ("Topic", "prices.x.y")), stores=("ledger",))
        assert missing(there, needs) == ("Store ledger", "Queue other", "Topic prices.x.y")

    def test_the_stores_of_the_system_are_there(self) -> None:
        assert missing(self.There(), Needs(stores=("$sys.failsafe",))) == ()

    @pytest.mark.parametrize(
        ("pattern", "name", "is_covered"),
        [
            ("a.*", "a.b", True),
            ("a.*", "a", False),
            ("a.*", "a.b.c", False),
            ("a.>", "a.b.c", True),
            ("a.>", "a", False),
            (">", "a", True),
            ("*.b", "a.b", True),
            ("a.b", "a.c", False),
        ],
    )
    def test_patterns(self, pattern: str, name: str, is_covered: bool) -> None:
        assert matches(pattern, name) is is_covered


def test_differences_are_said_field_by_field() -> None:
    old = {"spec": {"maxMessages": 1, "store": "a", "same": 1}}
    new = {"spec": {"maxMessages": 2, "prefetch": "none", "same": 1}}
    assert differences(old, new) == [
        "spec.maxMessages: 1 -> 2",
        "spec.store: 'a' -> absent",
        "spec.prefetch: absent -> 'none'",
    ]


def test_an_object_that_cannot_be_read_does_not_hang_in_its_deletion() -> None:
    """As one with a value of a later version, after the operator was rolled back."""
    metadata = {"name": "odd", "namespace": "n", "uid": "u", "finalizers": [FINALIZER]}
    odd = {
        "apiVersion": STERNA_API,
        "kind": "Queue",
        "metadata": metadata,
        "spec": {"clusterRef": {"name": "mq"}, "prefetch": "later"},
    }
    refused = placed.read(odd)
    assert isinstance(refused, Plan)
    assert refused.steps == ()
    assert [said.reason for said in refused.announcements] == [Reason.Invalid]
    going = placed.read({**odd, "metadata": {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert isinstance(going, Plan)
    assert [type(step) for step in going.steps] == [RemoveFinalizer]


@pytest.mark.parametrize("adoption", ["fail", "observe"])
def test_what_nobody_manages_is_not_taken_over_at_the_second_look(adoption: str) -> None:
    desired = queue(adoption=adoption)
    for _ in range(3):
        made = plan(desired, Observed(NOW, CLUSTER, home="b-0"))
        assert made.steps == ()
        assert reason(made) == ("Observed" if adoption == "observe" else "Exists")
        assert made.status is not None
        desired = replace(desired, status=dict(made.status.fields))
