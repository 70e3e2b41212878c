"""The sender's name in a message: of certificates and single calls, in the blocking interface and in commands."""

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna import admin, blocking, errors
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna.cli.application import run

from tests.access.authorities import Authority
from tests.broker.calls import CallError, call
from tests.broker.wire import queue
from tests.running import manifest

Node = Callable[..., Any]

NAMED = (manifest("Queue", "q", "senderName: true"),)


def basic(user: str, secret: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"),)


def url_of(running: Any, scheme: str = "sterna") -> str:
    return f"{scheme}://localhost:{running.messaging.port}"


async def senders(url: str, **options: Any) -> list[str]:
    """Who sent what waits in the queue."""
    async with admin.connect(url, **options) as client:
        return [one.sender async for one in client.browse_queue("q", limit=1_000)]


async def send(channel: Any, name: str, secret: str) -> None:
    """By a single call."""
    message = messages.Message(text="m")
    await call(channel, "Messaging/Send", metadata=basic(name, secret), destination=queue("q"), message=message)


@pytest.mark.covers("EMS-DEST-A35")
async def test_it_is_the_name_of_the_clients_certificate(
    node: Node, pki: dict[str, Path], tmp_path: Path, authority: Authority
) -> None:
    running = await node(NAMED, **pki, client_ca=authority.write(tmp_path / "ca.pem"), certificate_user="cn")
    certificate, key = authority.issue(tmp_path / "alice", "alice")
    tls = sterna.Tls(ca=authority.pem, certificate=certificate, key=key)
    url = url_of(running, "sternas")
    async with sterna.connect(url, tls=tls) as connection:
        await connection.send("q", "hello")
    assert await senders(url, tls=tls) == ["alice"]


async def test_single_calls_send_as_their_user_each(
    node: Node, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(NAMED, users=await asyncio.to_thread(users_file, alice="1", bob="2"))
    channel = channel_to(running)
    for user, secret in (("alice", "1"), ("bob", "2"), ("alice", "1")):
        await send(channel, user, secret)
    bob = basic("bob", "2")
    answer = await call(channel, "Messaging/Receive", metadata=bob, destination=queue("q"), max_messages=3)
    assert [one.delivery.sender for one in answer.messages] == ["alice", "bob", "alice"]


async def test_single_calls_of_very_many_users_keep_few_streams(node: Node, channel_to: Any) -> None:
    running = await node(NAMED)
    channel = channel_to(running)
    names = [f"user-{number}" for number in range(40)]

    def kept() -> int:
        return sum(getattr(one, "_purpose", "") == "Send" for one in running._parts.pump.ports.values())

    await asyncio.gather(*(send(channel, name, "") for name in names * 2))
    async with AsyncExitStack() as under_way:
        for name in names:
            await under_way.enter_async_context(running._parts.sending._sender_of(name))
        assert kept() == 40
    # Nobody calls any more after so many at once.
    assert kept() == 16
    for name in names:
        await send(channel, name, "")
    assert sorted(await senders(url_of(running))) == sorted(names * 3)
    assert kept() == 16


async def test_no_message_carries_a_name_that_is_too_long_or_no_text(node: Node, channel_to: Any) -> None:
    running = await node(NAMED)
    for name in ("x" * 1_025, "a\nb"):
        with pytest.raises(errors.InvalidNameError, match="name of a user"):
            await sterna.connect(url_of(running), user=name, connect_attempts=1)
        with pytest.raises(CallError, match="name of a user"):
            await send(channel_to(running), name, "")
    async with sterna.connect(url_of(running), user="x" * 1_024) as connection:
        await connection.send("q", "m")
    assert await senders(url_of(running)) == ["x" * 1_024]


async def test_the_blocking_interface_and_commands_show_it(
    node: Node, users_file: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = await node(NAMED, users=await asyncio.to_thread(users_file, alice="1"))
    url = url_of(running)

    def use() -> tuple[str, Any]:
        with blocking.connect(url, user="alice", password="1") as connection:
            connection.send("q", "hello")
            connection.send("q", "hello")
            found = connection.consumer("q").receive(5)
            assert found is not None
            return found.sender, found.properties["JMS_STERNA_SENDER"]

    assert await asyncio.to_thread(use) == ("alice", "alice")
    password = tmp_path / "password"
    await asyncio.to_thread(password.write_text, "1")
    access = ("-s", url, "--user", "alice", "--password-file", str(password), "-o", "jsonl")
    for command in ("browse", "receive"):
        assert await asyncio.to_thread(run, [command, "q", *access]) == 0
        row = json.loads(capsys.readouterr().out.splitlines()[0])
        assert row["sender"] == "alice"
        assert "JMS_STERNA_SENDER" not in row["properties"]
