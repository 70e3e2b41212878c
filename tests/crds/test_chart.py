"""The chart that installs the definitions, with a real Helm against a real API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from sterna_resources.definitions import NAMES, definitions

from tests.support.api_server import ApiServer, programs

_CHART = str(Path(__file__).parents[2] / "charts" / "sterna-crds")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def server(tier_api: None, tmp_path: Path) -> Iterator[ApiServer]:
    """A server of its own, that knows nothing of us."""
    with ApiServer(tmp_path, programs()) as server:
        yield server


def installed(server: ApiServer) -> set[str]:
    """The names of the definitions that are there."""
    return {item["metadata"]["name"] for item in server.request("GET", _DEFINITIONS).body["items"]}


def test_definitions_are_installed_upgraded_and_kept(server: ApiServer) -> None:
    expected = {f"{names.plural}.sterna.dev" for names in NAMES.values()}
    for arguments in (("install", "crds", _CHART), ("upgrade", "crds", _CHART, "--set", "labels.team=messaging")):
        outcome = server.helm(*arguments)
        assert outcome.returncode == 0, outcome.stderr
        assert installed(server) == expected
    queue = server.request("GET", f"{_DEFINITIONS}/queues.sterna.dev").body
    assert queue["metadata"]["labels"]["team"] == "messaging"
    assert server.helm("uninstall", "crds").returncode == 0
    assert installed(server) == expected


def test_the_chart_holds_the_definitions_and_nothing_else(api_server: ApiServer) -> None:
    outcome = api_server.helm("template", "crds", _CHART)
    assert outcome.returncode == 0, outcome.stderr
    rendered = {one["metadata"]["name"]: one["spec"] for one in YAML(typ="safe").load_all(outcome.stdout) if one}
    assert rendered == {one["metadata"]["name"]: one["spec"] for one in definitions().values()}


def test_keep_can_be_given_up(api_server: ApiServer) -> None:
    kept, given_up = (
        api_server.helm("template", "crds", _CHART, "--set", f"keep={value}").stdout for value in ("true", "false")
    )
    assert kept.count("helm.sh/resource-policy: keep") == len(NAMES)
    assert "resource-policy" not in given_up


def test_the_chart_passes_helms_own_checks(api_server: ApiServer) -> None:
    assert api_server.helm("lint", "--strict", _CHART).returncode == 0
    refused = api_server.helm("template", "crds", _CHART, "--set", "kep=true")
    assert "kep" in refused.stderr
    assert refused.returncode != 0
