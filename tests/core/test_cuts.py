"""Cuts for audits through the engine's Python face: begun, read piece by piece, confirmed, over restarts."""

import hashlib
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sterna_core import EngineError

from tests.core.driver import Client, Driver, queue, text

MANIFEST = hashlib.sha256(b"manifest").digest()


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def publisher(driver: Driver) -> tuple[Client, int]:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("orders"))
    return client, session


def publish(driver: Driver, client: Client, session: int, first: int, count: int, size: int = 1) -> None:
    for start in range(first, first + count, 100):
        client.publish(session, start, [text("x" * size)] * min(100, first + count - start))
    driver.wait(lambda: set(range(first, first + count)) <= client.confirmed())


def progress(driver: Driver) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(driver.engine.cut_progress())
    return found


def cut(driver: Driver) -> dict[str, Any]:
    """Begins a cut, waits for it, and says what it is."""
    driver.engine.begin_cut()
    driver.wait(lambda: progress(driver)["progress"] != "making")
    found = progress(driver)
    assert found["progress"] == "ready", found
    return found


def rows(driver: Driver, number: int) -> Counter[str]:
    """How many rows each table has."""
    reader, found = driver.engine.open_cut(number), Counter[str]()
    while (piece := reader.next()) is not None:
        folder, table, count, stream = piece
        found[f"{folder}/{table}"] += count
        # An Arrow IPC stream begins with its continuation mark.
        assert stream.startswith(b"\xff\xff\xff\xff")
    return found


def confirm(driver: Driver, number: int, manifest: bytes = MANIFEST) -> None:
    record = driver.engine.confirm_cut(number, manifest)
    driver.wait(lambda: driver.engine.log_progress()[1] > record)
    driver.wait(lambda: progress(driver)["progress"] == "none")


def test_a_chain_of_cuts_goes_on_over_a_restart(driver: Driver) -> None:
    client, session = publisher(driver)
    publish(driver, client, session, 1, 300)
    first = cut(driver)
    assert (first["number"], first["previous"], first["events"], first["gaps"]) == (1, None, [], [])
    assert first["previous_position"] == first["position"]
    found = rows(driver, 1)
    assert (found["state/deliverables"], found["state/messages"]) == (300, 300)
    assert found["state/counters"] == 1, "arrived"
    assert not [table for table in found if table.startswith("events/")]
    confirm(driver, 1)

    publisher(driver)
    driver.engine.configure('{"queues": [{"name": "orders"}]}')
    taker = driver.client()
    delivered = taker.consumer(taker.session(), queue("orders")).consumer_opened.source
    driver.wait(lambda: len(taker.deliveries()) == 300)
    taker.acknowledge(1, delivered, 1, 200)
    publish(driver, client, session, 301, 50)
    driver.restart()
    second = cut(driver)
    assert (second["number"], second["previous"]) == (2, MANIFEST.hex())
    assert second["previous_position"] == first["position"]
    assert second["events"] == [[first["position"], second["position"]]]
    found = rows(driver, 2)
    assert (found["state/deliverables"], found["events/stored"], found["events/arrivals"]) == (150, 50, 50)
    assert found["events/ends"] >= 1
    assert found["events/opened"] == 1, "what began before the first cut is no event"
    assert (found["events/configured"], found["events/losses"]) == (1, 0)
    # Asked for again it is the same one, also after a crash.
    driver.restart(clean=False)
    assert cut(driver)["position"] == second["position"]
    assert rows(driver, 2) == found
    confirm(driver, 2)
    driver.engine.stop()


def test_events_outlive_the_segments_that_they_are_of(driver: Driver) -> None:
    """What was sent and taken between two cuts is told of, although nothing of it is in the log any more."""
    client, session = publisher(driver)
    oldest = min(driver.folder.glob("*.segment"))
    cut(driver)
    confirm(driver, 1)
    for turn in range(6):
        publish(driver, client, session, 1 + 600 * turn, 600, size=1000)
        taker = driver.client()
        source = taker.consumer(taker.session(), queue("orders")).consumer_opened.source
        driver.wait(lambda taker=taker: len(taker.deliveries()) == 600)  # type: ignore[misc]
        taker.acknowledge(1, source, 1, 600 * (turn + 1))
        taker.close()
        # Upkeep that was not urgent comes about once a second.
        driver.advance(1500)
    found = cut(driver)
    driver.wait(lambda: not oldest.exists())
    assert len(found["events"]) > 2
    assert found["gaps"] == []
    counted = rows(driver, 2)
    assert (counted["events/stored"], counted["state/deliverables"]) == (3600, 0)
    confirm(driver, 2)
    driver.wait(lambda: not list(driver.folder.glob("*.cut")))
    driver.engine.stop()


def test_a_wrong_confirmation_is_refused_and_changes_nothing(driver: Driver) -> None:
    publisher(driver)
    with pytest.raises(EngineError, match="no cut 1 that waits"):
        driver.engine.confirm_cut(1, MANIFEST)
    cut(driver)
    with pytest.raises(EngineError, match="32 bytes"):
        driver.engine.confirm_cut(1, b"short")
    with pytest.raises(EngineError, match="no cut 2 that waits"):
        driver.engine.confirm_cut(2, MANIFEST)
    with pytest.raises(EngineError, match="no cut 2 that waits"):
        driver.engine.open_cut(2)
    assert progress(driver)["progress"] == "ready"
    confirm(driver, 1)
    # Whoever did not hear of it may say it again.
    driver.engine.confirm_cut(1, MANIFEST)
    with pytest.raises(EngineError, match="no cut 1 that waits"):
        driver.engine.confirm_cut(1, hashlib.sha256(b"another").digest())
    driver.engine.stop()


def test_a_damaged_file_is_told_and_never_taken_for_a_cut(driver: Driver) -> None:
    client, session = publisher(driver)
    publish(driver, client, session, 1, 10)
    cut(driver)
    [file] = driver.folder.glob("*.cut")
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(EngineError, match="does not verify"):
        rows(driver, 1)
    driver.engine.stop()


def test_what_takes_more_than_it_may_is_given_up_and_said(tmp_path: Path) -> None:
    driver = Driver(tmp_path, snapshot_bytes_max=50_000)
    client, session = publisher(driver)
    publish(driver, client, session, 1, 200)
    assert cut(driver)["number"] == 1
    confirm(driver, 1)
    publish(driver, client, session, 201, 4000, size=100)
    driver.engine.begin_cut()
    driver.wait(lambda: progress(driver)["progress"] != "making")
    found = progress(driver)
    assert (found["progress"], "space" in found["why"]) == ("failed", True)
    driver.wait(lambda: not list(driver.folder.glob("*.cut")))
    # Messages go on.
    publish(driver, client, session, 4201, 10)
    driver.engine.stop()


def test_what_was_kept_too_long_goes_and_is_a_gap(tmp_path: Path) -> None:
    driver = Driver(tmp_path, snapshot_age_max_ms=60_000)
    client, session = publisher(driver)
    cut(driver)
    confirm(driver, 1)
    publish(driver, client, session, 1, 3000, size=1000)
    driver.wait(lambda: progress(driver)["kept_bytes"] > 0)
    driver.advance(100_000)
    driver.wait(lambda: progress(driver)["kept_bytes"] == 0)
    found = cut(driver)
    assert [gap["reason"] for gap in found["gaps"]] == ["they were too old"]
    ranges = sorted([*map(tuple, found["events"]), *((gap["from"], gap["to"]) for gap in found["gaps"])])
    assert ranges[0][0] == found["previous_position"]
    assert ranges[-1][1] == found["position"]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    driver.engine.stop()


def test_whoever_reads_a_cut_that_goes_meanwhile_is_told(driver: Driver) -> None:
    client, session = publisher(driver)
    cut(driver)
    confirm(driver, 1)
    publish(driver, client, session, 1, 300)
    cut(driver)
    late = driver.engine.open_cut(2)
    begun = driver.engine.open_cut(2)
    assert begun.next() is not None
    confirm(driver, 2)
    driver.wait(lambda: not list(driver.folder.glob("*.cut")))
    with pytest.raises(EngineError, match=r"\.cut is not there any more"):
        late.next()
    # What is open already can be read to its end; what comes after it is gone, and is not taken for the end.
    with pytest.raises(EngineError, match=r"\.events is not there any more"):
        while begun.next() is not None:
            pass
    driver.engine.stop()
