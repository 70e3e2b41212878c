"""A watch for each Secret that is referred to: what it costs, and that one that falls silent is opened anew."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.support.unreliable_proxy import UnreliableProxy
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow_callbacks(30_000),
]

_ROOT = Path(__file__).parent.parent.parent

# The connections are not made: it is looked at what asyncio sets aside for each.
_PROGRAM = """
import asyncio, resource, ssl
from asyncio.sslproto import SSLProtocol
from sterna_operator.connections import make_room
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048))
make_room()
async def main():
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context()
    one = SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future(), server_hostname="x")
    print(len(one._ssl_buffer), *resource.getrlimit(resource.RLIMIT_NOFILE))
asyncio.run(main())
"""


@pytest.mark.usefixtures("tier_broker")
def test_there_is_room_for_a_thousand_connections() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(_ROOT / "operator")},
    )
    assert done.returncode == 0, done.stderr
    buffer_bytes, soft, hard = map(int, done.stdout.splitlines()[-1].split())
    # A quarter of a MiB for each would be more than the operator may have in all.
    assert 16 * 1024 < buffer_bytes <= 64 * 1024
    assert (soft, hard) == (2048, 2048)


def _open_files(pid: int) -> list[str]:
    """How many files a process may open: as it is, and how many at most."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line.split()[3:5] for line in lines if line.startswith("Max open files"))


@pytest.fixture
def proxy(world: World, tmp_path: Path) -> Iterator[UnreliableProxy]:
    with UnreliableProxy(world.server.url, world.server.kubeconfig, tmp_path) as made:
        yield made


async def test_a_watch_of_a_secret_that_falls_silent_is_opened_anew(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    world.make_cluster()
    running = operator(kubeconfig=str(proxy.kubeconfig), watch_inactivity_s=4.0)

    def watches() -> int:
        return sum(path.endswith("/secrets") for path in proxy.passed_watches)

    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.secret("her-password", "one")
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        before = await world.ready("User", "ann", timeout_s=60)
        await eventually(watches, timeout_s=60, what="a watch of the Secret")
        proxy.freeze()
        seen = watches()
        await eventually(lambda: watches() > seen, timeout_s=60, what="another watch of the Secret")
        proxy.thaw()
        world.secret("her-password", "two")

        def is_two() -> bool:
            return bool((world.get("User", "ann") or before)["status"]["credentials"] == 2)

        await eventually(is_two, timeout_s=60, what="both passwords")
        assert running.process is not None
        soft, hard = _open_files(running.process.pid)
        assert soft == hard or int(soft) >= 65_536
