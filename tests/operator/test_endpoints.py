"""The etcds that clusters may name: compared however they are spelt, and nothing is sent to any other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sterna_operator.endpoints import normal, refused, same_place
from sterna_operator.kube import path
from sterna_operator.main import _parser, _settings
from sterna_operator.settings import OperatorSettings, SettingsError

from tests.access.authorities import Authority
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually


@pytest.mark.parametrize(
    ("allowed", "endpoint", "is_allowed"),
    [
        pytest.param("https://etcd.db:2379", "https://etcd.db:2379", True, id="the same"),
        pytest.param("https://etcd.db", "https://ETCD.db.:2379", True, id="spelt otherwise"),
        pytest.param("https://etcd.db:2379", "http://etcd.db:2379", False, id="without TLS"),
        pytest.param("https://etcd.db:2379", "https://etcd.db:2380", False, id="another port"),
        pytest.param("https://*.db:2379", "https://etcd-0.db:2379", True, id="within"),
        pytest.param("https://*.db:2379", "https://a.b.db:2379", True, id="deep within"),
        pytest.param("https://*.db:2379", "https://evil-db:2379", False, id="only ends like it"),
        pytest.param("https://*.db:2379", "https://.db:2379", False, id="nothing before"),
        pytest.param("https://*.db:2379", "http://etcd-0.db:2379", False, id="within, without TLS"),
        pytest.param("https://[FD00::1]:2379", "https://[fd00::1]:2379", True, id="IPv6"),
        pytest.param("https://etcd.db:2379", "https://etcd.db:99999", False, id="no port"),
    ],
)
def test_what_is_allowed(allowed: str, endpoint: str, is_allowed: bool) -> None:
    assert refused([endpoint], [allowed]) == ([] if is_allowed else [endpoint])
    assert refused([endpoint], []) == []


def test_a_place_is_the_same_however_it_is_spelt() -> None:
    assert same_place(["http://a:2379", "http://b:2379"], ["http://B.:2379"])
    assert not same_place(["http://a:2379"], ["http://a:2380"])


@pytest.mark.parametrize("text", ["etcd:2379", "ftp://etcd:2379", "https://", "https://etcd/x", "https://u@etcd:2379"])
def test_what_is_no_endpoint_keeps_the_operator_from_starting(text: str) -> None:
    with pytest.raises(ValueError, match="is no endpoint"):
        normal(text)
    with pytest.raises(SettingsError, match="allowed_etcd_endpoints"):
        OperatorSettings(allowed_etcd_endpoints=(text,))


def test_they_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_OPERATOR_ALLOWED_ETCD_ENDPOINTS", "https://a:2379, https://b:2379")
    settings = _settings(_parser().parse_args(["run"]))
    assert settings.allowed_etcd_endpoints == ("https://a:2379", "https://b:2379")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, list[object]]]:
    """Somebody who notes who comes: the address, and the comers."""
    came: list[object] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer.get_extra_info("peername"))
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"https://{host}:{port}", came


@pytest.mark.slow_callbacks(30_000)
@pytest.mark.parametrize("is_allowed", [False, True])
async def test_credentials_are_carried_to_allowed_endpoints_alone(
    world: World, operator: MakeOperator, is_allowed: bool
) -> None:
    async with listening() as (endpoint, came):
        allowed = [endpoint] if is_allowed else ["https://etcd.elsewhere:2379", "https://*.db:2379"]
        operator(only_etcd=False, broker_image="broker:1", allowed_etcd_endpoints=allowed)
        world.certificate("etcd-access", {"username": b"root", "password": b"secret", "ca.crt": Authority().pem})
        etcd = {"endpoints": [endpoint], "tls": {"ca": {"name": "etcd-access"}}, "credentialsSecret": "etcd-access"}
        world.apply("MessagingCluster", "mq", {"etcd": etcd, "insecure": True})
        world.queue("orders")
        if is_allowed:
            await eventually(lambda: came, timeout_s=30.0)
            return
        text = await world.reason("MessagingCluster", "mq", "EndpointNotAllowed")
        assert f"etcd.endpoints: {endpoint} is not among those" in text
        assert world.condition("MessagingCluster", "mq", "Stalled")["status"] == "True"
        assert endpoint in await world.reason("Queue", "orders", "EndpointNotAllowed")
        assert not world.server.request("GET", path("apps/v1", "StatefulSet", world.namespace, "mq-broker")).ok
        assert came == []
