"""Decides who a client is, from what it gives and what its connection's certificate says.

| the broker has | a client is let in with | as |
|---|---|---|
| no users, no client certificates as users | anything but a token | the user it names, unchecked |
| users | user and password | that user |
| client certificates as users | a certificate of the client CA | the certificate's name |
| both | user and password; or a certificate whose name is a known user | that user |

Whether there are users may change while the broker runs (`--insecure` in a cluster, before there are any): who came in
when there were none has to leave when there are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sterna_broker.access.identities import AuthContext, CertificateUser, Claim, certificate_user, host_of
from sterna_broker.access.users import UserStore
from sterna_broker.access.verification import Verifier
from sterna_broker.refusals import RefusedError


@dataclass(frozen=True)
class Proof:
    """Who somebody is, and what showed it; nothing secret."""

    user: str = ""
    """Empty: anonymous."""

    credential: str | None = None
    """The id of the password's credential; None: it was no password."""

    certified: bool = False
    """Whether the user is the name of the client's certificate."""


class Authentication:
    """See the module."""

    def __init__(
        self, users: UserStore, verifier: Verifier, *, has_users: Callable[[], bool], certificate_user: CertificateUser
    ) -> None:
        self._users = users
        self._verifier = verifier
        self._has_users = has_users
        self._certificate_user: CertificateUser = certificate_user

    @property
    def is_required(self) -> bool:
        """Whether anybody has to show who they are."""
        return self._has_users() or self._certificate_user != "off"

    async def prove(self, claim: Claim, context: AuthContext, peer: str) -> Proof:
        """Who it is.

        Raises:
            RefusedError: UNAUTHENTICATED, or what `Verifier.verify` raises.
        """
        if claim.token:
            raise RefusedError(
                "UNAUTHENTICATED",
                "credentials",
                "This broker has no means to check a token.",
                "Connect with user and password, or with a client certificate.",
            )
        if self._has_users() and (claim.user or claim.password):
            credential = await self._verifier.verify(claim.user, claim.password, host_of(peer))
            return Proof(claim.user, credential.id)
        if not self.is_required:
            return Proof(claim.user)
        name = certificate_user(context, self._certificate_user)
        if not name:
            raise RefusedError(
                "UNAUTHENTICATED",
                "credentials",
                "This broker lets in only whom it knows, and no user and password were given.",
                "Give user and password (such as STERNA_USER and STERNA_PASSWORD_FILE).",
            )
        if self._has_users() and not self._users.knows(name):
            raise RefusedError(
                "UNAUTHENTICATED",
                "certificate",
                "The name of the client certificate is no user of this broker.",
                "Add the user (its list of passwords may be empty), or use another certificate.",
            )
        return Proof(name, certified=True)

    def still_holds(self, proof: Proof) -> bool:
        """Whether the proof would be accepted now."""
        if proof.credential is not None:
            return self._users.accepts(proof.user, proof.credential)
        if proof.certified:
            return not self._has_users() or self._users.knows(proof.user)
        return not self.is_required
