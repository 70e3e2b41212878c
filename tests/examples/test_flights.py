"""The parts of the demo: its input, and the books that prove its result."""

from pathlib import Path

import pytest

from examples.flights import flights
from examples.flights.tally import Tally


@pytest.fixture(scope="module")
def january() -> list[flights.Flight]:
    return list(flights.read(flights.locate(), limit=2_000))


def test_the_input_is_the_installed_file() -> None:
    assert Path(flights.locate()).name == "flights.csv.zip"


def test_flights_are_read_as_they_stand(january: list[flights.Flight]) -> None:
    first = january[0]
    assert (first.topic, first.number, first.dest, first.dep_delay) == ("flights.EWR.UA", 1545, "IAH", 2)
    assert first.row.startswith("2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH")
    assert len(january) == len({flight.key for flight in january}) == 2_000


def test_a_flight_without_a_delay_was_cancelled(january: list[flights.Flight]) -> None:
    cancelled = [flight for flight in january if flight.cancelled]
    assert cancelled
    assert all(",NA," in flight.row for flight in cancelled)


def test_a_missing_flight_is_lost_only_when_it_was_confirmed() -> None:
    tally = Tally("archive", bytearray([1, 1, 1, 1, 0]))
    tally.delivered(0, flagged=False)
    tally.put_aside(1, flagged=False)
    assert tally.lost(bytearray([1, 1, 1, 0, 1])) == [2]
    tally.left.add(2)
    assert tally.lost(bytearray([1, 1, 1, 0, 1])) == []


def test_a_second_delivery_must_be_flagged() -> None:
    tally = Tally("workers", bytearray([1, 1]))
    tally.delivered(0, flagged=False)
    tally.delivered(0, flagged=True)
    assert tally.unflagged_duplicates == 0
    tally.delivered(0, flagged=False)
    assert (tally.unflagged_duplicates, tally.redelivered, tally.deliveries) == (1, 1, 3)
    assert tally.accepted_count == 1


def test_a_rejected_flight_is_delivered_but_not_accepted() -> None:
    tally = Tally("boarding", bytearray([1]))
    tally.delivered(0, flagged=False, accept=False)
    assert not tally.is_complete()
    tally.put_aside(0, flagged=False)
    assert tally.is_complete()


def test_a_flight_at_the_wrong_place_is_noticed() -> None:
    tally = Tally("delays", bytearray([0]))
    tally.delivered(0, flagged=False)
    assert tally.strangers == 1
