"""Authorities, users, and brokers with both; the brokers' own fixtures are those of tests/broker."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from sterna_broker.access import admissions, gate, users, verification
from sterna_resources.passwords import Cost, hash_password

from tests.access.authorities import Authority
from tests.broker.conftest import broker_process, node, wire

__all__ = ["broker_process", "node", "wire"]

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
#: Cheap to check: most tests are about something else than the cost.
CHEAP = Cost(memory_kib=64, passes=1, lanes=1)


@functools.cache
def hashed(password: str, cost: Cost = CHEAP) -> str:
    """A hash of a password, made once."""
    return hash_password(password, cost)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """The CA that tests trust."""
    return Authority()


@pytest.fixture
def pki(tmp_path: Path, authority: Authority) -> dict[str, Path]:
    """The flags of a broker with a certificate for localhost."""
    certificate, key = authority.issue(tmp_path / "server")
    return {"tls_cert": certificate, "tls_key": key}


@pytest.fixture
def users_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a users file: names with their passwords, or with lines of YAML."""

    def write(**named: str | list[str]) -> Path:
        path = tmp_path / "users.yaml"
        lines = []
        for name, passwords in named.items():
            entries = [passwords] if isinstance(passwords, str) else passwords
            lines.append(
                f"{name}:\n" + "".join(f"  - {_entry(one)}\n" for one in entries) if entries else f"{name}: []\n"
            )
        temporary = path.with_suffix(".new")
        temporary.write_text("".join(lines))
        temporary.replace(path)
        return path

    return write


def _entry(password: str) -> str:
    password, _, not_after = password.partition("@")
    return f"{{argon2: '{hashed(password)}', not_after: {not_after}}}" if not_after else hashed(password)


@pytest.fixture
async def channel_to() -> AsyncIterator[Callable[[Any], grpc.aio.Channel]]:
    """As that of tests/broker, with a TCP connection for each channel, as clients in different processes have."""
    async with AsyncExitStack() as stack:

        def open_channel(target: Any) -> grpc.aio.Channel:
            channel = grpc.aio.insecure_channel(str(getattr(target, "messaging", target)), options=OWN_CONNECTION)
            stack.push_async_callback(channel.close)
            return channel

        yield open_channel


@pytest.fixture
def secure_channel(authority: Authority) -> Callable[..., grpc.aio.Channel]:
    """Channels that trust the authority; close them."""

    def make(address: object, certificate: tuple[Path, Path] | None = None) -> grpc.aio.Channel:
        pair = (certificate[1].read_bytes(), certificate[0].read_bytes()) if certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.pem, *pair)
        # A pool of its own: a connection that is there already would show the certificate of before.
        return grpc.aio.secure_channel(str(address), credentials, options=OWN_CONNECTION)

    return make


class Recorder:
    """In place of a module's logger: keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.events.append({"event": event, "level": level, **fields})


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the modules of `access` log."""
    recorder = Recorder()
    for module in (admissions, gate, users, verification):
        monkeypatch.setattr(module, "_log", recorder)
    return recorder.events
