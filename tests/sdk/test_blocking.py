"""The blocking twin: the same shape without asyncio."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
import sterna
from sterna import AcknowledgeMode, Sent, SternaError, Topic, blocking, errors

from tests.waiting import eventually_blocking


def test_send_and_receive(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        assert connection.connected
        sent = connection.send(name, "one", properties={"x": 1})
        assert isinstance(sent, Sent)
        with connection.producer(name) as producer:
            producer.send_soon("two")
            producer.flush()
        assert [one.body for one in connection.browser(name)] == ["one", "two"]
        with connection.consumer(name) as consumer:
            first = consumer.receive(5)
            assert first is not None
            assert (first.body, first.properties.get_int("x"), first.message_id) == ("one", 1, sent.message_id)
            for message in consumer:
                assert message.body == "two"
                break
            assert consumer.receive(0.1) is None
            assert consumer.receive_nowait() is None


def test_acknowledging(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        for number in range(3):
            connection.send(name, str(number))
        with connection.session(AcknowledgeMode.INDIVIDUAL) as session:
            consumer = session.consumer(name, prefetch=3)
            messages = [consumer.receive(5) for _ in range(3)]
            assert messages[0] is not None
            assert messages[0].acknowledge() is True
            assert messages[1] is not None
            with messages[1]:
                pass
        with connection.consumer(name) as consumer:
            left = consumer.receive(5)
            assert left is not None
            assert (left.body, left.redelivered) == ("2", True)
            assert consumer.receive(0.1) is None


def test_acknowledging_one_message_alone(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        for number in range(3):
            connection.send(name, str(number))
        with connection.session(AcknowledgeMode.CLIENT) as session:
            consumer = session.consumer(name, prefetch=3)
            messages = [consumer.receive(5) for _ in range(3)]
            assert messages[0] is not None
            assert messages[2] is not None
            assert messages[0].acknowledge(alone=True) is True
            assert messages[2].acknowledge(alone=True, wait=False) is True
        with connection.consumer(name) as consumer:
            left = consumer.receive(5)
            assert left is not None
            assert (left.body, left.redelivered) == ("1", True)
            assert consumer.receive(0.1) is None


def test_transactions(url: str, name: str) -> None:
    with blocking.connect(url) as connection, connection.session(transacted=True) as session:
        producer = session.producer(name)
        with pytest.raises(RuntimeError), session.transaction():
            producer.send("never")
            raise RuntimeError("no")
        with session.transaction():
            producer.send("always")
        assert [one.body for one in connection.browser(name)] == ["always"]
        with pytest.raises(errors.NotAllowedError), connection.session() as plain, plain.transaction():
            pass


def test_listeners_may_call_back(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        heard: list[str] = []
        threads: set[str] = set()

        def listener(message: blocking.Message) -> None:
            threads.add(threading.current_thread().name)
            connection.send(f"{name}.out", message.text.upper())
            heard.append(message.text)

        connection.consumer(name, listener=listener)
        for text in ("a", "b"):
            connection.send(name, text)
        eventually_blocking(lambda: len(heard) == 2)
        assert heard == ["a", "b"]
        assert all(one.startswith("sterna-listener") for one in threads)
        assert [one.body for one in connection.browser(f"{name}.out")] == ["A", "B"]


def test_completions_are_told_in_another_thread(url: str, name: str) -> None:
    with blocking.connect(url) as connection, connection.producer(name) as producer:
        outcomes: list[Sent | SternaError] = []
        producer.send_soon("x", on_completion=outcomes.append)
        producer.flush()
        eventually_blocking(lambda: len(outcomes) == 1)
        assert isinstance(outcomes[0], Sent)


def test_requests(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        connection.consumer(name, listener=lambda message: connection.reply(message, message.text[::-1]))
        assert connection.request(name, "abc", timeout=10).body == "cba"
        topic = connection.temporary_topic()
        assert isinstance(topic, Topic)
        connection.delete_temporary(topic)


def test_many_threads_share_a_connection(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        producer = connection.producer(name)
        threads = [
            threading.Thread(target=lambda: [producer.send("x") for _ in range(10)], name=f"t{number}")
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(connection.browser(name))) == 80


def test_errors_are_the_same(url: str) -> None:
    with pytest.raises(errors.UnreachableError):
        blocking.connect("sterna://127.0.0.1:1", connect_attempts=1)
    connection = blocking.connect(url)
    connection.close()
    with pytest.raises(errors.ClosedError):
        connection.send("x", "y")
    assert not [one for one in threading.enumerate() if one.name == "sterna-loop"]


@pytest.mark.parametrize("face", ["Connection", "Session", "Producer", "Consumer", "Message"])
def test_the_twins_have_the_same_shape(face: str) -> None:
    def public(cls: type) -> set[str]:
        return {one for one in dir(cls) if not one.startswith("_")}

    left_out = {
        "Connection": {"default_session", "address", "closed", "epoch"},
    }.get(face, set())
    missing = public(getattr(sterna, face)) - public(getattr(blocking, face)) - left_out
    assert missing == set()
    for one in public(getattr(blocking, face)):
        mine, twin = getattr(getattr(blocking, face), one), getattr(getattr(sterna, face), one, None)
        if inspect.isfunction(mine) and inspect.isfunction(twin) and not one.startswith("on_"):
            ours = set(inspect.signature(mine).parameters)
            theirs = set(inspect.signature(twin).parameters)
            assert theirs <= ours or "options" in ours


def test_a_listener_may_close_what_it_belongs_to(url: str, name: str) -> None:
    for what in ("consumer", "session", "connection"):
        connection = blocking.connect(url)
        session = connection.session()
        closed = threading.Event()
        parts: dict[str, Any] = {"session": session, "connection": connection}

        def close(_: Any, what: str = what, parts: dict[str, Any] = parts, closed: threading.Event = closed) -> None:
            parts[what].close()
            closed.set()

        queue = f"{name}.{what}"
        parts["consumer"] = session.consumer(queue, listener=close)
        connection.send(queue, "x")
        assert closed.wait(10), f"closing the {what} waits for the listener that closes it"
        connection.close()
        with blocking.connect(url) as again:
            assert list(again.browser(queue)) == [], "the listener was done with it"


def test_listeners_do_not_wait_for_one_another(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        everybody = threading.Barrier(21)
        for number in range(20):
            connection.consumer(f"{name}.{number}", listener=lambda _: everybody.wait(20))
            connection.send(f"{name}.{number}", "x")
        everybody.wait(20)


def test_what_a_completion_raises_is_logged(url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with blocking.connect(url) as connection:
        called = threading.Event()

        def fail(_: Any) -> None:
            called.set()
            raise ValueError("the application's own")

        producer = connection.producer(name)
        producer.send_soon("x", on_completion=fail)
        producer.flush()
        assert called.wait(10)
    eventually_blocking(lambda: "a callback of the application failed" in caplog.text)


def test_a_close_is_no_error_where_another_thread_closes_at_the_same_time(url: str, name: str) -> None:
    connection = blocking.connect(url)
    portal = connection._portal
    settle_all = portal.settle_all

    def closed_meanwhile(timeout_s: float | None = None) -> None:
        portal.settle_all = settle_all  # type: ignore[method-assign]
        other = threading.Thread(target=connection.close)
        other.start()
        other.join(10)
        assert portal.is_stopped
        settle_all(timeout_s)

    portal.settle_all = closed_meanwhile  # type: ignore[method-assign]
    connection.close()
    with pytest.raises(errors.ClosedError):
        connection.send(name, "x")
