"""What a user's plan is, as a pure function."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sterna_etcd.records import BrokerStatus, Credential, Owner, UserRecord
from sterna_operator.keys import Key
from sterna_operator.kinds.topology import ClusterSeen, Desired
from sterna_operator.kinds.user import Observed, PasswordSeen, credentials, plan
from sterna_operator.mirror import Kept
from sterna_operator.plans import AddFinalizer, Plan, PutUser, RemoveFinalizer, RemoveUser
from sterna_resources.reading import from_object
from sterna_resources.user import User

NOW = 1_800_000_000_000
OVERLAP_S = 60
CLUSTER = ClusterSeen("MessagingCluster ns/mq", brokers=frozenset({"b-0"}))


def hash_of(name: str) -> str:
    return f"$argon2id${name}"


def user(**spec: Any) -> Desired:
    document = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": "ann", "namespace": "ns"},
        "spec": {
            "clusterRef": {"name": "mq"},
            "passwordSecret": {"name": "s"},
            "overlapSeconds": OVERLAP_S,
            **spec,
        },
    }
    resource = from_object(document)
    assert isinstance(resource, User)
    return Desired(Key("User", "ns", "ann"), "uid-1", 1, resource, has_finalizer=True)


def standing(desired: Desired, *taken: Credential, owner: Owner | None = None) -> Kept[UserRecord]:
    return Kept(UserRecord(credentials=list(taken), owner=owner or desired.owner), 7)


def put_by(made: Plan) -> UserRecord:
    [step] = [step for step in made.steps if isinstance(step, PutUser)]
    return step.record


def test_the_first_password() -> None:
    desired = replace(user(), has_finalizer=False)
    made = plan(desired, Observed(NOW, CLUSTER, password=PasswordSeen("1", None, hash_of("one"))))
    assert [type(step) for step in made.steps] == [AddFinalizer, PutUser]
    assert put_by(made).credentials == [Credential(argon2=hash_of("one"))]


def test_a_new_password_stands_beside_the_old_one_until_the_overlap_ends() -> None:
    desired = user()
    before = standing(desired, Credential(argon2=hash_of("one")))
    made = plan(desired, Observed(NOW, CLUSTER, before, PasswordSeen("2", None, hash_of("two"))))
    end = NOW + OVERLAP_S * 1000
    both = [Credential(argon2=hash_of("two")), Credential(argon2=hash_of("one"), not_after_ms=end)]
    assert put_by(made).credentials == both
    assert made.again_s == pytest.approx(OVERLAP_S, abs=1)
    after = standing(desired, *both)
    later = plan(desired, Observed(end - 1, CLUSTER, after, PasswordSeen("2", 0)))
    assert not [step for step in later.steps if isinstance(step, PutUser)]
    over = plan(desired, Observed(end, CLUSTER, after, PasswordSeen("2", 0)))
    assert put_by(over).credentials == both[:1]


def test_revoked_means_now() -> None:
    desired = user(revokeImmediately=True)
    before = standing(desired, Credential(argon2=hash_of("one")))
    made = plan(desired, Observed(NOW, CLUSTER, before, PasswordSeen("2", None, hash_of("two"))))
    assert put_by(made).credentials == [Credential(argon2=hash_of("two"))]


def test_going_back_to_the_old_password_keeps_its_hash() -> None:
    desired = user()
    before = standing(
        desired, Credential(argon2=hash_of("two")), Credential(argon2=hash_of("one"), not_after_ms=NOW + 1)
    )
    made = plan(desired, Observed(NOW, CLUSTER, before, PasswordSeen("3", 1)))
    assert put_by(made).credentials == [
        Credential(argon2=hash_of("one")),
        Credential(argon2=hash_of("two"), not_after_ms=NOW + OVERLAP_S * 1000),
    ]


def test_ready_once_every_broker_has_come_to_the_records_revision() -> None:
    desired = user()
    seen = Observed(NOW, CLUSTER, standing(desired, Credential(argon2=hash_of("one"))), PasswordSeen("1", 0))
    for revision, status in ((6, "False"), (7, "True")):
        brokers = {"b-0": BrokerStatus(applied_revision=revision, state="serving")}
        made = plan(desired, replace(seen, brokers=brokers))
        assert made.status is not None
        assert made.status.conditions[0].status == status


def test_nobody_is_let_in_before_the_record_goes() -> None:
    desired = replace(user(), is_deleting=True)
    full = standing(desired, Credential(argon2=hash_of("one")))
    shut = plan(desired, Observed(NOW, CLUSTER, full))
    assert put_by(shut).credentials == []
    empty = standing(desired)
    late = {"b-0": BrokerStatus(applied_revision=6, state="serving")}
    assert plan(desired, Observed(NOW, CLUSTER, empty, brokers=late)).steps == ()
    done = {"b-0": BrokerStatus(applied_revision=7, state="serving")}
    steps = plan(desired, Observed(NOW, CLUSTER, empty, brokers=done)).steps
    assert [type(step) for step in steps] == [RemoveUser, RemoveFinalizer]


@pytest.mark.parametrize(
    ("spec", "cluster"),
    [
        pytest.param({"paused": {}}, CLUSTER, id="paused"),
        pytest.param({}, replace(CLUSTER, fault=("EtcdUnavailable", "does not answer")), id="etcd away"),
        pytest.param({}, replace(CLUSTER, allows=False), id="not allowed"),
    ],
)
def test_what_was_found_of_a_password_stays_said_where_nobody_looks(spec: dict[str, Any], cluster: ClusterSeen) -> None:
    """Else the password would be compared with its hash again, which takes a processor a while."""
    found = {"credentials": 2, "overlapUntil": "2030-01-31T18:00:00Z", "passwordVersion": "1#ab"}
    made = plan(replace(user(**spec), status={**found, "claim": "ann"}), Observed(NOW, cluster))
    assert made.steps == ()
    assert made.status is not None
    assert made.status.fields == {"claim": "ann", **found}


def test_a_user_of_an_administrator_is_left_alone() -> None:
    desired = user()
    theirs = standing(desired, Credential(argon2=hash_of("x")), owner=Owner(by="admin"))
    made = plan(desired, Observed(NOW, CLUSTER, theirs, PasswordSeen("1", None, hash_of("one"))))
    assert made.steps == ()
    assert plan(replace(desired, is_deleting=True), Observed(NOW, CLUSTER, theirs)).steps[0] == RemoveFinalizer(
        "let User ns/ann go"
    )


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(-100_000, 100_000) | st.none()), max_size=8),
    st.integers(0, 8),
    st.booleans(),
)
def test_the_secrets_password_is_always_taken_and_no_other_for_ever(
    taken: list[tuple[str, int | None]], position: int, revoke: bool
) -> None:
    desired = user(revokeImmediately=revoke)
    assert isinstance(desired.resource, User)
    before = [Credential(argon2=hash_of(name), not_after_ms=None if end is None else NOW + end) for name, end in taken]
    stands = position if position < len(before) else None
    password = PasswordSeen("v", stands, "" if stands is not None else hash_of("fresh"))
    after = credentials(desired.resource, before, password, NOW)
    assert after[0].not_after_ms is None
    assert after[0].argon2 == (before[stands].argon2 if stands is not None else hash_of("fresh"))
    assert len(after) <= 8
    if revoke:
        assert len(after) == 1
    for one in after[1:]:
        assert one.not_after_ms is not None
        assert NOW < one.not_after_ms <= NOW + max(OVERLAP_S * 1000, 100_000)
    # An end is never put off.
    ends = {(one.argon2, one.not_after_ms) for one in before if one.not_after_ms is not None}
    assert all((one.argon2, one.not_after_ms) in ends or one.not_after_ms == NOW + 60_000 for one in after[1:])
    assert credentials(desired.resource, after, PasswordSeen("v", 0), NOW) == after
