"""Open-loop schedules: messages are due by the clock."""

from sterna._measuring.schedules import Schedule


def test_messages_are_due_at_even_distances() -> None:
    schedule = Schedule(rate=1_000, start_ns=5_000_000_000)
    assert [schedule.due_ns(number) - schedule.start_ns for number in (0, 1, 2_500)] == [0, 1_000_000, 2_500_000_000]


def test_a_stall_makes_all_messages_behind_it_due() -> None:
    schedule = Schedule(rate=1_000, start_ns=0)
    assert schedule.due_count(-1) == 0
    assert schedule.due_count(0) == 1
    assert schedule.due_count(2_000_000_000) == 2_001


def test_waiting_ends_when_the_message_is_due() -> None:
    schedule = Schedule(rate=10, start_ns=0)
    assert schedule.wait_s(3, 100_000_000) == 0.2
    assert schedule.wait_s(3, 900_000_000) == 0
