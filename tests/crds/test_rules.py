"""Every rule: the models in Python and the API server take and refuse the same, and no way leads around."""

from typing import Any

import pytest
from sterna_resources import ManifestError, from_object
from sterna_resources.definitions import definitions
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.rules import KEYWORD
from sterna_resources.store_snapshot import StoreSnapshotSpec

from tests.crds.cases import Case, Change, cases, ids
from tests.crds.changes import changes
from tests.crds.cluster_cases import cluster_cases
from tests.crds.conftest import Kinds, document

_CASES = [*cases(), *cluster_cases()]
_CHANGES = changes()

# In Kubernetes a reference is needed that a laptop does without.
_NEEDED_IN_KUBERNETES = "spec.clusterRef: Required value"


def here(case: Case) -> str | None:
    """What our own models say of a case."""
    try:
        from_object(document(case.kind, case.name, case.spec), KUBERNETES_KINDS)
    except ManifestError as error:
        return str(error)
    return None


@pytest.mark.parametrize("case", _CASES, ids=ids(_CASES))
def test_both_take_or_refuse(kinds: Kinds, case: Case) -> None:
    answer, said_here = kinds.create(case.kind, case.name, case.spec), here(case)
    if case.refused is None:
        assert answer.ok, answer.message
        assert said_here is None
        return
    assert not answer.ok, "Kubernetes takes it"
    assert case.refused in answer.message
    if case.here == "":
        return
    assert said_here is not None, "the model takes it"
    assert case.here is not None
    assert case.here in said_here


@pytest.mark.parametrize("change", _CHANGES, ids=ids(_CHANGES))
def test_what_may_change_and_what_may_not(kinds: Kinds, change: Change) -> None:
    first, *more = change.specs
    made = kinds.create(change.kind, change.name, first, dry_run=False)
    assert made.ok, made.message
    try:
        answers = [kinds.replace_spec(change.kind, change.name, spec) for spec in more]
    finally:
        kinds.delete(change.kind, change.name)
    *before, last = answers
    assert all(answer.ok for answer in before), before
    if change.refused is None:
        assert last.ok, last.message
    else:
        assert not last.ok, "Kubernetes takes it"
        assert change.refused in last.message


def rules() -> set[tuple[str, str]]:
    """Kind and message of every rule there is."""
    found: set[tuple[str, str]] = set()

    def collect(kind: str, node: Any) -> None:
        if isinstance(node, dict):
            found.update((kind, rule["message"]) for rule in node.get(KEYWORD, ()))
            for value in node.values():
                collect(kind, value)
        elif isinstance(node, list):
            for value in node:
                collect(kind, value)

    for kind, definition in definitions().items():
        collect(kind, definition)
    return found


def test_nothing_of_a_snapshot_but_its_pause_is_left_out_of_the_rule() -> None:
    [rule] = StoreSnapshotSpec.RULES
    fields = {str(field.alias or name) for name, field in StoreSnapshotSpec.model_fields.items()} - {"paused"}
    assert {name for name in fields if f"self.{name} == oldSelf.{name}" in rule.rule} == fields


def test_the_tables_hold_every_rule() -> None:
    said = {(case.kind, case.refused) for case in _CASES if case.refused}
    said |= {(change.kind, change.refused) for change in _CHANGES if change.refused}
    without = {
        (kind, message) for kind, message in rules() if not any(kind == one and text in message for one, text in said)
    }
    assert not without
