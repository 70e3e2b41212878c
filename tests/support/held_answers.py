"""What a broker answers, held back from the application's task: the SDK's reader has it, and whoever asked does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sterna import errors
from sterna._link import Link


class HeldAnswers:
    """Holds back what one broker answers to requests of one kind, from now on, until `opened` is set.

    `arrived` is set by the first of them. `refusals`: whether errors are held back, too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, address: str, kind: str, *, refusals: bool = True) -> None:
        self.arrived, self.opened = asyncio.Event(), asyncio.Event()
        asked = Link.request

        async def request(link: Link, session: int, name: str, *content: Any, **how: Any) -> Any:
            answered = asked(link, session, name, *content, **how)
            if name != kind or link.address != address:
                return await answered
            is_held = True
            try:
                return await answered
            except errors.SternaError:
                is_held = refusals
                raise
            finally:
                if is_held:
                    self.arrived.set()
                    await self.opened.wait()

        monkeypatch.setattr(Link, "request", request)
