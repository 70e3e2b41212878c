"""Where etcd is, and how one proves to it who one is."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


class SettingsError(ValueError):
    """The settings do not make sense; the text says which."""


@dataclass(frozen=True)
class EtcdSettings:
    """What a client needs. Files are read again when they change, so that certificates and passwords may rotate."""

    endpoints: tuple[str, ...]
    """URLs, `http://host:port` or `https://host:port`; all of one cluster, and all of one scheme."""

    ca: Path | None = None
    """The certificates that etcd's own is checked against. None: those of the system."""

    cert: Path | None = None
    """Our certificate, if etcd wants one."""

    key: Path | None = None
    """The certificate's key."""

    user: str | None = None
    """The user to authenticate as, if etcd's authentication is on."""

    password: str | None = field(default=None, repr=False)
    """The user's password."""

    password_file: Path | None = None
    """A file with the password, in place of `password`; a newline at its end does not count."""

    connect_timeout_ms: int = 1_500
    """How long one endpoint may take to be connected to before the next one is tried."""

    attempt_timeout_ms: int = 2_500
    """How long one endpoint may take to answer a request that was sent."""

    timeout_ms: int = 6_000
    """How long a request may take with all attempts together."""

    def __post_init__(self) -> None:
        """Checks what can be checked without touching network or files."""
        if not self.endpoints:
            raise SettingsError("etcd: no endpoint is given; write http://host:2379 or several of them, comma between")
        schemes = set()
        for url in self.endpoints:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise SettingsError(f"etcd: '{url}' is no endpoint; write http://host:2379 or https://host:2379")
            schemes.add(parts.scheme)
        if len(schemes) > 1:
            raise SettingsError("etcd: endpoints must be all http or all https")
        if (self.cert is None) != (self.key is None):
            raise SettingsError("etcd: a certificate and its key belong together; one of them is missing")
        if self.user is not None and self.password is None and self.password_file is None:
            raise SettingsError(f"etcd: no password is given for the user '{self.user}'")
        if not self.is_tls and (self.ca or self.cert):
            raise SettingsError("etcd: certificates are given, and the endpoints say http: write https")

    @classmethod
    def of_urls(cls, urls: str, **others: object) -> "EtcdSettings":
        """Settings from URLs with commas between them.

        Raises:
            SettingsError: they do not make sense.
        """
        endpoints = tuple(url.strip().rstrip("/") for url in urls.split(",") if url.strip())
        return cls(endpoints, **others)  # type: ignore[arg-type]

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.endpoints[0].startswith("https:")

    def current_password(self) -> str:
        """The password as it is now. Touches the disk when it is in a file."""
        if self.password_file is not None:
            return self.password_file.read_text("utf-8").rstrip("\r\n")
        return self.password or ""


def target_of(url: str) -> str:
    """An endpoint's URL as gRPC's target."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port or 2379}"
