"""Which etcds the operator speaks to, and sends credentials to.

Whoever may make a MessagingCluster says where its etcd is, and which Secrets of its namespace have the credentials: the
operator and the brokers would carry them there. With a list of endpoints, clusters may name those alone.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

_PORT = 2379
_ANY = "*."


def normal(url: str) -> str:
    """An endpoint in the one spelling by which endpoints are compared.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url.strip())
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"'{url}' is no endpoint of etcd; write https://host:2379")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port or _PORT}"


def refused(endpoints: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """Those of the endpoints that are not among the allowed ones (none at all: everything is allowed).

    `https://*.etcd.svc:2379` allows every name that ends so.
    """
    known = [normal(one) for one in allowed]
    return [one for one in endpoints if known and not any(_is_within(_spelt(one), its) for its in known)]


def same_place(ones: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two clusters name an endpoint that is the same, however it is spelt."""
    return bool({_spelt(one) for one in ones} & {_spelt(one) for one in others})


def _spelt(endpoint: str) -> str:
    """As `normal`; what is none is only the same as itself."""
    try:
        return normal(endpoint)
    except ValueError:
        return endpoint


def _is_within(endpoint: str, allowed: str) -> bool:
    scheme, _, place = allowed.partition("://")
    if not place.startswith(_ANY):
        return endpoint == allowed
    its_scheme, _, its_place = endpoint.partition("://")
    return its_scheme == scheme and its_place.endswith(place.removeprefix("*")) and its_place != place[1:]
