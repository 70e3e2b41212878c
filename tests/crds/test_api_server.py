"""The server that the other tests here stand on."""

import pytest

from tests.support.api_server import ApiServer


def test_the_server_is_a_real_one(api_server: ApiServer) -> None:
    version = api_server.request("GET", "/version")
    assert version.ok
    assert version.body["major"] == "1"


@pytest.mark.usefixtures("kinds")
def test_kubectl_reaches_it(api_server: ApiServer) -> None:
    """Once the kinds are there: it keeps what it has once learned of the server, for others on this machine too."""
    outcome = api_server.kubectl("get", "namespaces", "-o", "name")
    assert "namespace/default" in outcome.stdout, outcome.stderr
