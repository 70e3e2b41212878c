"""A server that knows our kinds."""

import pytest

from tests.support.api_server import ApiServer
from tests.waiting import eventually_blocking


@pytest.fixture(scope="session")
def definitions_installed(api_server: ApiServer) -> None:
    """The definitions, as who does without Helm installs them."""
    outcome = api_server.kubectl("apply", "--server-side", "--force-conflicts", "-f", "crds/yaml")
    assert outcome.returncode == 0, outcome.stderr
    # No controller runs that would make it.
    account = {"metadata": {"name": "default"}}
    api_server.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    kinds = "/apis/sterna.dev/v1alpha1/users"
    eventually_blocking(lambda: api_server.request("GET", kinds).ok, timeout_s=20, what="the kinds to be served")
