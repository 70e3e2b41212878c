"""The small examples say what they should, each against a fresh broker that their own manifests configure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import RunningBroker

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "01-five-lines.py": ["one coffee for table 7, confirmed as <Durability.DURABLE: 1>"],
    "02-request-reply.py": ["IS ANYBODY THERE?"],
    "03-durable-subscription.py": ["news.weather: rain", "news.weather: more rain"],
    "04-transactions.py": ["rolled back: the power went", "again: True", "booked 12.5"],
    "05-shared-workers.py": ["30 jobs done by 3 workers"],
    "06-browser.py": ["30 kg", "300 kg", "3 still there"],
    "07-blocking.py": ["letter 0", "letter 1", "letter 2"],
}


@pytest.fixture(scope="module")
def broker(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    manifests = (EXAMPLES / "broker" / "destinations.yaml").read_text().split("---\n")
    with RunningBroker(tmp_path_factory.mktemp("examples"), manifests) as running:
        yield running


def test_no_small_example_is_forgotten() -> None:
    assert sorted(EXPECTED) == sorted(one.name for one in EXAMPLES.glob("[0-9][0-9]-*.py"))


@pytest.mark.covers("EMS-CLI-D36")
@pytest.mark.parametrize("example", EXPECTED)
def test_an_example_says_what_it_should(broker: RunningBroker, example: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / example), f"sterna://{broker.address}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == EXPECTED[example]
