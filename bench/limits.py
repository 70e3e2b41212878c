"""The machine's own limits, measured in the same run: a durable 4 KB write, and one grpc.aio message there and back.

No broker of this design can confirm faster than these two together, so line B1 is stated against them.
"""

import os
import subprocess
import sys
import time  # noqa: TID251 - measures real time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sterna._loop import run as run_loop
from sterna._measuring.latencies import Latencies

_BLOCK = 4_096
_FILE_BYTES = 32 * 1024 * 1024
ECHO_METHOD = "/sterna.bench.Echo/Stream"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine can do at best, in microseconds."""

    fdatasync_p50_us: float
    fdatasync_p99_us: float
    echo_p50_us: float
    echo_p99_us: float

    def as_dict(self) -> dict[str, float]:
        """For the results."""
        return asdict(self)

    def best(self, other: "Limits") -> "Limits":
        """The better of two measurements: what the machine can do does not get worse by somebody else's being busy."""
        return Limits(**{name: min(value, getattr(other, name)) for name, value in self.as_dict().items()})


def measure_limits(folder: Path, *, syncs: int, echoes: int) -> Limits:
    """Measure both; `folder` is where the brokers will keep their data."""
    disk = fdatasync(folder / "fdatasync", syncs)
    there_and_back = echo(echoes)
    return Limits(
        round(disk.percentile(50), 1),
        round(disk.percentile(99), 1),
        round(there_and_back.percentile(50), 1),
        round(there_and_back.percentile(99), 1),
    )


def fdatasync(path: Path, times: int) -> Latencies:
    """How long 4 KB take to be on disk, one after the other, in a file that is there and zero."""
    latencies = Latencies()
    block = os.urandom(_BLOCK)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        zeros = bytes(1024 * 1024)
        for offset in range(0, _FILE_BYTES, len(zeros)):
            os.pwrite(handle, zeros, offset)
        os.fsync(handle)
        for number in range(times):
            begin = time.monotonic_ns()
            os.pwrite(handle, block, number * _BLOCK % _FILE_BYTES)
            os.fdatasync(handle)
            latencies.record(time.monotonic_ns() - begin)
    finally:
        os.close(handle)
        path.unlink()
    return latencies


def echo(times: int) -> Latencies:
    """How long a message of 1.2 KB takes to a grpc.aio server in another process and back, one at a time."""
    server = subprocess.Popen([sys.executable, "-m", "bench.echo"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        return run_loop(_echo_client(server.stdout.readline().strip(), times))
    finally:
        server.terminate()
        server.wait(10)


async def _echo_client(address: str, times: int) -> Latencies:
    import grpc

    latencies = Latencies()
    payload = os.urandom(1_200)
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(ECHO_METHOD, request_serializer=None, response_deserializer=None)()
        for number in range(times + times // 10):
            begin = time.monotonic_ns()
            await call.write(payload)
            await call.read()
            # The first tenth warms both sides.
            if number >= times // 10:
                latencies.record(time.monotonic_ns() - begin)
        await call.done_writing()
    return latencies
