"""On how small a disk a broker serves: what manifests of clusters are refused by (`SERVING_SEGMENTS`)."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sterna_resources.broker import SERVING_SEGMENTS

from tests.running import RunningBroker, manifest
from tests.support.leaving_out import leave_out
from tests.waiting import eventually_blocking

_SEGMENT_BYTES = 2**20
_BROKER = f"log: {{segmentBytes: {_SEGMENT_BYTES}}}, limits: {{messageBytes: {_SEGMENT_BYTES // 2}}}"


@pytest.fixture
def disk(tier_broker: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, with so many bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        leave_out("brokers on small disks", f"no file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _readiness(monitor: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{monitor}/readyz", timeout=5) as response:
            return dict(json.loads(response.read()))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read()))


@pytest.mark.parametrize(
    ("disk", "serves"),
    [
        pytest.param(_SEGMENT_BYTES * SERVING_SEGMENTS, False, id="so many segments"),
        pytest.param(_SEGMENT_BYTES * SERVING_SEGMENTS + 2**18, True, id="and a little"),
    ],
    indirect=["disk"],
)
def test_a_broker_serves_on_more_than_so_many_segments(disk: Path, tmp_path: Path, serves: bool) -> None:
    broker = RunningBroker(tmp_path / "broker", [manifest("Broker", "small", _BROKER)], data=str(disk / "data"))
    try:
        broker.start()
        eventually_blocking(lambda: _is_settled(_readiness(broker.monitor), serves))
        answer = _readiness(broker.monitor)
    finally:
        broker.kill()
    assert answer["ready"] is serves
    assert any("disk is full" in str(reason) for reason in answer["reasons"]) is not serves


def _is_settled(answer: dict[str, Any], serves: bool) -> bool:
    """Upkeep has looked for room, and warns where there is not enough for all that it would like."""
    return answer["ready"] is serves and bool(answer["warnings"])
