"""Ports that tests take for their own servers."""

from tests.support import api_server

_NODE_PORTS = range(30_000, 32_768)
"""What an API server gives to Services unless it is told otherwise."""


def test_no_server_of_a_test_has_a_port_that_a_service_may_have() -> None:
    """Else the address of a test's etcd reads like that of a Service, in one telling of a story and not in another."""
    given = {api_server.free_port() for _ in range(2_000)}
    assert not given.intersection(_NODE_PORTS)
