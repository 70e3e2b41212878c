"""A server that knows our kinds."""

import pytest

from tests.support.api_server import ApiServer
from tests.support.kinds import install_kinds_for_kubectl


@pytest.fixture(scope="session")
def definitions_installed(api_server: ApiServer) -> None:
    """The definitions, and what pods of the namespace `default` need."""
    install_kinds_for_kubectl(api_server)
    # No controller runs that would make it.
    account = {"metadata": {"name": "default"}}
    api_server.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
