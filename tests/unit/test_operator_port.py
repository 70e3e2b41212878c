"""The operator's port: what is no request fills no log."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sterna_operator import liveness


async def test_what_is_no_request_is_refused_and_no_log_is_filled_with_it(caplog: pytest.LogCaptureFixture) -> None:
    idle: Any = SimpleNamespace(faults=list)
    runner, address = await liveness.serve("127.0.0.1:0", idle, idle, lambda: True)
    try:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    finally:
        await runner.cleanup()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
