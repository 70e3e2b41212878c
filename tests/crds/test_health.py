"""What Argo CD and other followers of conditions make of an object: the script itself is run."""

from pathlib import Path
from typing import Any

import pytest
from lupa import lua51
from ruamel.yaml import YAML
from sterna_resources.definitions import NAMES
from sterna_resources.status import PENDING

_FOLDER = Path(__file__).parents[2] / "crds" / "argo-cd"


def condition(name: str, status: str, reason: str = "Applied", message: str = "") -> dict[str, str]:
    return {"type": name, "status": status, "reason": reason, "message": message}


def three(
    ready: str, reconciling: str, stalled: str, reason: str = "Applied", message: str = ""
) -> list[dict[str, str]]:
    names = ("Ready", "Reconciling", "Stalled")
    return [
        condition(name, status, reason, message)
        for name, status in zip(names, (ready, reconciling, stalled), strict=True)
    ]


def judged(script: str, status: Any, **metadata: Any) -> tuple[str, str]:
    """Health and message of an object of generation 2."""
    runtime = lua51.LuaRuntime()
    document = {"metadata": {"generation": 2, **metadata}, **({} if status is None else {"status": status})}
    runtime.globals().obj = runtime.table_from(document, recursive=True)
    health = runtime.execute(script)
    return health["status"], health["message"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, ("Progressing", "The operator has not looked at it yet")),
        ({"observedGeneration": -1}, ("Progressing", "The operator has not looked at it yet")),
        (
            {"observedGeneration": -1, "conditions": [PENDING.values()]},
            ("Progressing", "The operator has not looked at it yet"),
        ),
        (
            {"observedGeneration": 1, "conditions": three("True", "False", "False")},
            ("Progressing", "The operator has not looked at it yet"),
        ),
        ({"observedGeneration": 2, "conditions": three("True", "False", "False", message="fine")}, ("Healthy", "fine")),
        (
            {"observedGeneration": 2, "conditions": three("True", "True", "False", message="one broker at a time")},
            ("Progressing", "one broker at a time"),
        ),
        (
            {"observedGeneration": 2, "conditions": three("False", "True", "False", message="waits for b-0")},
            ("Progressing", "waits for b-0"),
        ),
        (
            {
                "observedGeneration": 2,
                "conditions": three("False", "False", "True", "NameClaimed", "shop/orders has it"),
            },
            ("Degraded", "shop/orders has it"),
        ),
        (
            {"observedGeneration": 2, "conditions": three("False", "False", "False", "Paused", "until tomorrow")},
            ("Suspended", "until tomorrow"),
        ),
        (
            {"observedGeneration": 2, "conditions": three("True", "False", "True", "Planned", "status.plan has it")},
            ("Suspended", "status.plan has it"),
        ),
    ],
)
def test_argo_cd_sees_what_is(status: Any, expected: tuple[str, str]) -> None:
    assert judged((_FOLDER / "health.lua").read_text(), status) == expected


def test_a_deletion_that_waits_says_why() -> None:
    script = (_FOLDER / "health.lua").read_text()
    held = {"observedGeneration": 2, "conditions": three("False", "True", "False", "DeletionBlocked", "7 messages")}
    assert judged(script, held, deletionTimestamp="2030-01-01T00:00:00Z") == ("Progressing", "7 messages")
    assert judged(script, None, deletionTimestamp="2030-01-01T00:00:00Z") == ("Progressing", "Being deleted")


def test_every_kind_has_the_check() -> None:
    patch = YAML(typ="safe").load((_FOLDER / "argocd-cm.yaml").read_text())["data"]
    script = (_FOLDER / "health.lua").read_text()
    assert patch == {f"resource.customizations.health.sterna.dev_{kind}": script for kind in NAMES}
