"""The certificates that hold now, as gRPC and aiohttp want them: asked for at each handshake.

So a renewed certificate counts from the next connection on, and those that are there go on undisturbed.
"""

import ssl
from collections.abc import Callable
from typing import Any

import grpc

from sterna_broker.access.certificates import Certificates


class ServerTls:
    """Holds the certificates and hands them out; `certificates` may be set at any time."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For `add_secure_port`. With a client CA every client has to show a certificate of it."""
        given = self.certificates

        def fetch() -> Any:
            # On a thread of gRPC's, at each handshake. None: as before.
            nonlocal given
            current = self.certificates
            if current is given:
                return None
            given = current
            return _configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given), fetch, require_client_authentication=given.client_ca is not None
        )

    def http_context(self) -> ssl.SSLContext:
        """For a server of asyncio. The context of each new connection is exchanged for the current one."""
        first = self.certificates.context
        first.sni_callback = self._exchange
        return first

    @property
    def _exchange(self) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], int | None]:
        def exchange(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
            # Called for clients without a server name, too.
            connection.context = self.certificates.context

        return exchange


def _configuration(certificates: Certificates) -> Any:
    pair = [(certificates.key, certificates.chain)]
    return grpc.ssl_server_certificate_configuration(pair, root_certificates=certificates.client_ca)
