"""What is known of a name that is being given up, from the moment on at which it is closed until etcd has spoken."""

import asyncio

from sterna_etcd import Condition, EtcdError


class ElsewhereError(Exception):
    """A home cannot be changed, since what is tied to it is not where it was known to be."""


class Leaving:
    """A name that is being given up: it is closed here, and nobody's until etcd has said whose it is."""

    def __init__(self, broker: str, revision: int, partners: list[Condition], *, is_bound: bool) -> None:
        self.broker = broker
        """Whose it is to be; empty: nobody's."""

        self.revision = revision
        """Its epoch here: under another one it is decided, whatever becomes of what is asked."""

        self.partners = partners
        """That what bridges tie to it is where it was when it was said where this goes."""

        self.is_bound = is_bound
        """It follows others, and is not to be open here again."""

        self.told = asyncio.Event()
        """Set once it has ended, or is in doubt."""

        self.doubt: EtcdError | None = None
        """Why nobody knows whether etcd has taken it from us."""
