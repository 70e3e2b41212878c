"""`sterna lookup`, and connection factories on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran, rows

Cli = Callable[..., Ran]


@pytest.mark.covers("EMS-CLI-B09", "EMS-CLI-B13", "EMS-CLI-B14")
def test_a_factory_is_created_shown_looked_up_and_deleted(cli: Cli) -> None:
    asked = ("create", "factory", "Billing", "--url", "sterna://a:7222,b+c", "--alias", "Old", "--alias", "x/Billing")
    (made,) = rows(cli(*asked, "--set", "connectAttempts=7", "--set", "clientId=billing", "-o", "jsonl"))
    assert made == {"kind": "ConnectionFactory", "name": "Billing", "change": "created", "dryRun": False}
    assert rows(cli("create", "factory", "other", "--url", "sterna://d", "-o", "jsonl"))[0]["change"] == "created"
    shown = cli("get", "factories").out.splitlines()
    assert shown[0].split() == ["NAME", "URL", "CLIENT", "ALIASES"]
    assert [line.split() for line in shown[1:]] == [
        ["Billing", "sterna://a:7222,b+c", "billing", "Old,", "x/Billing"],
        ["other", "sterna://d"],
    ]
    spec = json.loads(cli("get", "connectionfactory", "Billing", "-o", "json").out)["spec"]
    settings = {"clientId": "billing", "connectAttempts": 7}
    assert spec == {"name": "Billing", "url": "sterna://a:7222,b+c", "aliases": ["Old", "x/Billing"], **settings}
    found = json.loads(cli("lookup", "x/Billing", "-o", "json").out)
    told = {"kind": "ConnectionFactory", "name": "Billing", "url": "sterna://a:7222,b+c", "loadBalancing": "none"}
    assert found == {**told, **settings}
    assert cli("delete", "factory", "Billing", "other", "--yes").code == 0
    assert cli("get", "factory", "Billing").code == 4
    gone = cli("lookup", "Old")
    assert (gone.code, gone.out) == (4, "")
    assert "NO_SUCH_DESTINATION" in gone.err


def test_settings_are_shown_as_manifests_write_them(cli: Cli, tmp_path: Path) -> None:
    spec = {
        "url": "sternas://a",
        "loadBalancing": "random",
        "connectDelayMs": 0,
        "connectTimeoutMs": 1_500,
        "reconnectDelayMs": 10,
        "reconnectDelayMaxMs": 20,
        "reconnectGiveUpMs": 0,
        "heartbeatMs": 5_000,
        "tls": {"caFile": "/ca.pem", "serverName": "mq"},
    }
    document = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "ConnectionFactory",
        "metadata": {"name": "full"},
        "spec": spec,
    }
    file = tmp_path / "factory.json"
    file.write_text(json.dumps(document))
    assert cli("apply", "-f", str(file)).code == 0
    assert json.loads(cli("lookup", "full", "-o", "json").out) == {"kind": "ConnectionFactory", "name": "full", **spec}
    assert cli("delete", "factory", "full", "--yes").code == 0


@pytest.mark.covers("EMS-CLI-B15", "EMS-DEST-D03")
def test_static_destinations_have_aliases_and_dynamic_ones_are_not_found(cli: Cli) -> None:
    assert cli("create", "queue", "l.kept", "--alias", "Kept").code == 0
    assert json.loads(cli("lookup", "Kept", "-o", "json").out) == {"kind": "Queue", "name": "l.kept"}
    assert "l.kept" in cli("lookup", "l.kept", "--kind", "queue").out
    assert cli("lookup", "Kept", "--kind", "topic").code == 4
    assert cli("send", "t.dynamic", "one").code == 0
    assert cli("get", "queue", "t.dynamic").code == 0
    assert cli("lookup", "t.dynamic").code == 4
    taken = cli("create", "topic", "l.other", "--alias", "Kept")
    assert taken.code == 2
    assert "'Kept' is an alias of the Queue l.kept" in taken.err


def test_a_factory_needs_to_say_where_to_connect(cli: Cli) -> None:
    refused = cli("create", "factory", "nowhere")
    assert refused.code == 2
    assert "spec.url: is missing" in refused.err
