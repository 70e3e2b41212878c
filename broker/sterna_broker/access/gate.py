"""The broker's access control, put together: what the node starts, what the services ask.

Files are read before anything listens, and a fault in them ends the start. Later, when they change, they are read
again; a fault is then logged, and what there was goes on to hold.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from sterna_broker import surroundings
from sterna_broker.access.admissions import Admissions
from sterna_broker.access.authentication import Authentication, Proof
from sterna_broker.access.certificates import CertificateFiles, Certificates, load
from sterna_broker.access.errors import AccessError
from sterna_broker.access.identities import AuthContext, CertificateUser, Claim, claim_of_call, claim_of_header
from sterna_broker.access.tls import ServerTls
from sterna_broker.access.users import UserStore
from sterna_broker.access.users_file import read_users
from sterna_broker.access.verification import Verifier
from sterna_broker.access.watching import Watch
from sterna_broker.options import BrokerOptions
from sterna_broker.pump import Pump, Ticket
from sterna_broker.refusals import RefusedError
from sterna_broker.server.connect import Call

_log = structlog.get_logger(part="access")

_EXPIRY_CHECK_S = 1.0
_EXPIRES_SOON_MS = 14 * 24 * 3600 * 1000


class Gate:
    """See the module. `open`, then `start`, then `stop`, each once."""

    def __init__(self, options: BrokerOptions, users: UserStore) -> None:
        self.tls: ServerTls | None = None
        self.users = users
        self.on_certificates: Callable[[str], None] = lambda _: None
        """Told the digest of the certificate file that is shown to clients: of the first one, and of each new one."""
        self.opens_metrics = options.open_metrics
        self._users_file = options.users
        self._files = _files(options)
        self._options = options
        self._verifier = Verifier(users)
        self.authentication = Authentication(
            users, self._verifier, has_users=self._has_users, certificate_user=_certificate_user(options)
        )
        self._pump: Pump | None = None
        self._admissions: Admissions | None = None
        self._watches: list[Watch] = []
        self._expiry: asyncio.Task[None] | None = None

    def _has_users(self) -> bool:
        """Whether clients have to be users. Insecurely, a cluster without any user lets in everybody."""
        options = self._options
        from_cluster = options.users_from_cluster and (not options.insecure or len(self.users) > 0)
        return options.users is not None or from_cluster

    async def open(self) -> None:
        """Reads certificates and users.

        Raises:
            AccessError: they cannot be used.
        """
        if self._files is not None:
            self._watches.append(Watch(self._files.paths, self._load_certificates))
            self._take_certificates(await asyncio.to_thread(load, self._files))
        if self._users_file is not None:
            self._watches.append(Watch([self._users_file], self._load_users))
            self.users.put(await asyncio.to_thread(read_users, self._users_file), "file")

    def start(self, pump: Pump) -> None:
        """Begins to let clients in, and to watch files and expiry."""
        self._pump = pump
        self._admissions = Admissions(self.authentication, pump)
        self.users.on_change(self._check_admissions)
        for watch in self._watches:
            watch.start()
        self._expiry = asyncio.create_task(self._end_expired(), name="end-expired-credentials")

    def _check_admissions(self) -> None:
        if self._admissions is not None:
            self._admissions.check()

    async def stop(self) -> None:
        """Ends."""
        for watch in self._watches:
            await watch.stop()
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        if self._admissions is not None:
            self._admissions.stop()
        await self._verifier.stop()

    async def reload(self) -> None:
        """Reads all files again, now. Faults are logged."""
        for watch in self._watches:
            await watch.look(anyway=True)

    # --- Who comes in

    def greet(self, ticket: Ticket) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """The answer to the engine's question whether a client may connect."""
        if ticket.get("internal"):
            # The broker's own streams act for somebody who was admitted already, or for nobody.
            return {"ok": {"user": (ticket.get("credentials") or {}).get("user", "")}}
        port = self._port(ticket["stream"])
        if port is not None:
            port.decide()
        given = ticket.get("credentials") or {}
        claim = Claim(given.get("user", ""), given.get("password", ""), given.get("token", ""))
        return self._greet(ticket["stream"], claim, ticket.get("peer", ""))

    async def _greet(self, stream: int, claim: Claim, peer: str) -> dict[str, Any]:
        assert self._admissions is not None, "the gate was not started"
        port = self._port(stream)
        try:
            proof = await self.authentication.prove(claim, port.auth_context if port is not None else {}, peer)
        except RefusedError as refused:
            return {"error": refused.document()}
        finally:
            if port is not None:
                # When the answer has been handed to the engine, which happens in this turn of the loop.
                asyncio.get_running_loop().call_soon(port.decided)
        self._admissions.admit(stream, proof)
        return {"ok": {"user": proof.user}}

    def _port(self, stream: int) -> Call | None:
        assert self._pump is not None, "the gate was not started"
        port = self._pump.ports.get(stream)
        return port if isinstance(port, Call) else None

    async def admit_call(self, context: Any) -> Proof:
        """Who makes a single call.

        Raises:
            RefusedError: nobody whom the broker knows.
        """
        claim = claim_of_call(context.invocation_metadata() or ())
        return await self.authentication.prove(claim, context.auth_context(), context.peer())

    async def admit_request(self, header: str | None, *, certified: bool, host: str) -> Proof:
        """Who asks for metrics over HTTP; a verified client certificate is enough.

        Raises:
            RefusedError: nobody whom the broker knows.
        """
        if certified or self.opens_metrics:
            return Proof(certified=certified)
        claim = claim_of_header(header) if header else Claim()
        return await self.authentication.prove(claim, _NO_CERTIFICATE, f"http:{host}:")

    # --- What is read

    @property
    def certificates(self) -> Certificates | None:
        """Those that are shown to clients now."""
        return self.tls.certificates if self.tls else None

    async def _load_certificates(self) -> bool:
        assert self._files is not None, "watched without files"
        try:
            self._take_certificates(await asyncio.to_thread(load, self._files))
        except AccessError as error:
            _log.error("certificates_not_reloaded", error=str(error))
            return False
        return True

    def _take_certificates(self, certificates: Certificates) -> None:
        if self.tls is not None and certificates == self.tls.certificates:
            return
        if self.tls is None:
            self.tls = ServerTls(certificates)
        else:
            self.tls.certificates = certificates
        self.on_certificates(certificates.digest)
        until = certificates.not_after.isoformat()
        _log.info("certificates_loaded", subject=certificates.subject, not_after=until)
        left_ms = certificates.not_after_ms - surroundings.wall_ms()
        if left_ms <= 0:
            _log.error("certificate_expired", subject=certificates.subject, not_after=until)
        elif left_ms < _EXPIRES_SOON_MS:
            _log.warning("certificate_expires_soon", subject=certificates.subject, not_after=until)

    async def _load_users(self) -> bool:
        assert self._users_file is not None, "watched without a file"
        try:
            users = await asyncio.to_thread(read_users, self._users_file)
        except AccessError as error:
            _log.error("users_not_reloaded", error=str(error))
            return False
        self.users.put(users, "file")
        return True

    async def _end_expired(self) -> None:
        """A credential that ends by itself changes nothing that anybody would be told of."""
        since_ms = surroundings.wall_ms()
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_S)
            now_ms = surroundings.wall_ms()
            if self.users.ended_since(since_ms):
                self._check_admissions()
            since_ms = now_ms


_NO_CERTIFICATE: AuthContext = {}


def _files(options: BrokerOptions) -> CertificateFiles | None:
    """The certificate files that the flags name.

    Raises:
        AccessError: one is there without the other.
    """
    for given, other, flag, wanted in (
        (options.tls_cert, options.tls_key, "--tls-cert", "--tls-key"),
        (options.tls_key, options.tls_cert, "--tls-key", "--tls-cert"),
        (options.client_ca, options.tls_cert, "--client-ca", "--tls-cert"),
    ):
        if given is not None and other is None:
            raise AccessError(f"{flag} {given}: is of no use without {wanted}")
    if options.certificate_user not in (None, "off") and options.client_ca is None:
        raise AccessError(f"--certificate-user {options.certificate_user}: is of no use without --client-ca")
    if options.tls_cert is None or options.tls_key is None:
        return None
    return CertificateFiles(options.tls_cert, options.tls_key, options.client_ca)


def _certificate_user(options: BrokerOptions) -> CertificateUser:
    """What was chosen; without a choice, client certificates are users where there are no others."""
    if options.certificate_user is not None:
        return options.certificate_user
    has_others = options.users is not None or options.users_from_cluster
    return "cn" if options.client_ca is not None and not has_others else "off"
