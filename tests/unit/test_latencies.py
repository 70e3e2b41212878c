"""The histogram that benchmarks rest on."""

import random

import pytest
from sterna._measuring.latencies import Latencies


@pytest.mark.parametrize("percent", [0.1, 50, 99, 99.9, 100])
def test_percentiles_are_exact_to_one_percent(percent: float) -> None:
    generator = random.Random(7)
    values = sorted(int(generator.lognormvariate(12, 2)) for _ in range(20_000))
    latencies = Latencies()
    for value in values:
        latencies.record(value)
    exact_us = values[max(int(len(values) * percent / 100 + 0.5), 1) - 1] / 1_000
    assert latencies.percentile(percent) == pytest.approx(exact_us, rel=0.01)


def test_small_values_are_exact() -> None:
    latencies = Latencies()
    for value in range(1, 101):
        latencies.record(value)
    assert latencies.percentile(50) == 0.05
    assert latencies.percentile(100) == 0.1


def test_what_two_processes_measured_adds_up() -> None:
    one, other, both = Latencies(), Latencies(), Latencies()
    for value in (10, 2_000, 3_000_000):
        one.record(value)
        both.record(value)
    for value in (500, 70_000):
        other.record(value, times=3)
        both.record(value, times=3)
    carried = Latencies.load(one.dump())
    carried.merge(Latencies.load(other.dump()))
    assert (carried.count, carried.max_ns) == (both.count, both.max_ns)
    assert [carried.percentile(p) for p in (1, 50, 99)] == [both.percentile(p) for p in (1, 50, 99)]


def test_a_negative_latency_counts_as_none() -> None:
    latencies = Latencies()
    latencies.record(-5)
    assert latencies.summary()["max"] == 0


def test_nothing_recorded_has_no_summary() -> None:
    assert Latencies().summary() == {}
