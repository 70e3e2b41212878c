"""The manifests' rules for names are the engine's: each judges the same texts, and they have to agree."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sterna_resources import names

from tests.broker.calls import CallError, call
from tests.broker.wire import queue

_ELEMENT = st.one_of(st.sampled_from(["", "a", "*", ">", "a*", ">b", "é" * 127, "x" * 128, "\\"]), st.text(max_size=5))
_NAMES = st.one_of(
    st.lists(_ELEMENT, min_size=1, max_size=5).map(".".join),
    st.integers(1, 66).flatmap(lambda count: st.integers(1, 6).map(lambda length: ".".join(["x" * length] * count))),
)


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    """Names that hypothesis draws, before a loop runs: where its tables are made first it keeps Python for seconds."""
    found: list[str] = []

    @settings(max_examples=150, database=None, suppress_health_check=list(HealthCheck))
    @given(_NAMES.filter(lambda name: "\ud800" not in name and name.isprintable()))
    def collect(name: str) -> None:
        found.append(name)

    collect()
    return found


@pytest.mark.covers("EMS-DEST-A07", "EMS-DEST-A08", "EMS-DEST-A09")
async def test_manifests_and_engine_take_and_refuse_the_same_names(
    drawn: list[str], node: Any, channel_to: Any
) -> None:
    channel = channel_to(await node())
    verdicts = set()
    for name in {*drawn, "a", "a.b", ".", "a..b", "a.*", ">", ".".join(["xxx"] * 49), ".".join(["xxx"] * 50)}:
        if names.reserved_fault(name) is not None or not name:
            continue
        fault = names.name_fault(name)
        verdicts.add(fault is None)
        try:
            await call(channel, "Messaging/Send", destination=queue(name))
            refused = None
        except CallError as error:
            refused = error.code
        assert (refused is None) == (fault is None), (name, fault, refused)
        assert refused in (None, "INVALID_NAME"), name
    assert verdicts == {True, False}
