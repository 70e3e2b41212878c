"""A whole MessagingCluster behind an API server that refuses, fails, loses answers, is slow, or cuts watches off.

The story is the one that operators are killed in; what is found at each of its checkpoints must be what is found where
nothing fails.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.etcds import RunningEtcd
from tests.operator.kubelet import install_surroundings
from tests.operator.lookouts import Lookout
from tests.operator.stories import REAL, Tellings, cluster
from tests.operator.tales import Tale
from tests.support.api_server import ApiServer
from tests.support.unreliable_proxy import UnreliableProxy

pytestmark = [
    pytest.mark.slow_callbacks(60_000),
    pytest.mark.timeout(900),
]

# The Lease's own writes fail as well; who leads must not depend on it here.
_LEASE_S = 60.0


@pytest.fixture
async def tellings(kinds: ApiServer, store: RunningEtcd, tmp_path: Path) -> AsyncIterator[Tellings]:
    install_surroundings(kinds)
    async with Lookout(kinds) as lookout:
        yield Tellings(kinds, store, lookout, tmp_path, cluster, **REAL, lease_duration_s=_LEASE_S)


def refuse(proxy: UnreliableProxy, status: int) -> None:
    """Every third write."""
    counter = itertools.count()
    proxy.failing = lambda method, path: status if method != "GET" and next(counter) % 3 == 0 else None


def lose(proxy: UnreliableProxy) -> None:
    """Every third write is done, and nobody hears of it."""
    counter = itertools.count()
    proxy.losing = lambda method, path: method != "GET" and next(counter) % 3 == 0


def fail_reading(proxy: UnreliableProxy) -> None:
    """Every fifth request that changes nothing, the beginnings of watches among them."""
    counter = itertools.count()
    proxy.failing = lambda method, path: 500 if method == "GET" and next(counter) % 5 == 0 else None


def slow_down(proxy: UnreliableProxy) -> None:
    """Each answer comes late."""
    proxy.delay_s = 0.3


def cut(proxy: UnreliableProxy) -> None:
    """A watch ends after two things that it has said, without a word."""
    proxy.words_max = 2


FAULTS = {
    "429": lambda proxy: refuse(proxy, 429),
    "500": lambda proxy: refuse(proxy, 500),
    "503": lambda proxy: refuse(proxy, 503),
    "lost answers": lose,
    "failing reads": fail_reading,
    "slow": slow_down,
    "cut watches": cut,
}


async def test_a_cluster_ends_the_same_whatever_the_api_server_does(tellings: Tellings, tmp_path: Path) -> None:
    undisturbed = await tellings.tell(None)
    proxies: dict[str, UnreliableProxy] = {}

    async def tell(name: str, proxy: UnreliableProxy) -> Tale:
        return await tellings.tell(undisturbed, name, kubeconfig=proxy.kubeconfig)

    with ExitStack() as stack:
        server = tellings.server
        for name, fault in FAULTS.items():
            folder = tmp_path / f"proxy {name}"
            folder.mkdir()
            proxies[name] = stack.enter_context(UnreliableProxy(server.url, server.kubeconfig, folder))
            fault(proxies[name])
        async with asyncio.TaskGroup() as group:
            for name, proxy in proxies.items():
                group.create_task(tell(name, proxy))
    for name in ("429", "500", "503", "failing reads"):
        assert len(proxies[name].failed) > 20, name
    assert len(proxies["lost answers"].lost) > 20
    # Each of some fifteen watches again and again.
    assert len(proxies["cut watches"].passed_watches) > 40
