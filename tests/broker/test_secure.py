"""`secure` asks for permissions, which there are none of yet: whoever sets it is told that it protects nothing."""

import asyncio
from typing import Any

import sterna.admin

from tests.broker.test_restarts_due import warned
from tests.running import ANYTHING, manifest

_NOTHING = "spec.secure is kept and inherited, and protects nothing: this version has no permissions"


async def test_who_sets_secure_is_told_that_it_protects_nothing(broker_process: Any) -> None:
    broker = await asyncio.to_thread(broker_process(ANYTHING).start)
    async with sterna.admin.connect(f"sterna://{broker.address}") as client:
        secure = "".join(manifest("Queue", name, "secure: true") + "---\n" for name in ("a", "b", "c", "d"))
        for dry_run in (True, False):
            told = await client.apply(secure + manifest("Topic", "open", "secure: false"), dry_run=dry_run)
            assert [one.warnings for one in told] == [(_NOTHING,)] * 4 + [()]
        assert await warned(broker) == [f"{_NOTHING} (a, b, c and 1 more)"]
        for name in ("a", "b", "c", "d"):
            await client.delete("Queue", name)
        assert await warned(broker) == []
