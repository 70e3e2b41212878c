"""Passwords and tokens: as text, or as a function that is asked at each dial, so that they can change.

They are put into the greeting (or a call's metadata) and nowhere else: no message, representation or log has them.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path

from sterna import errors

Secret = str | Callable[[], str | Awaitable[str]]
"""A text, or a function or coroutine function that gives it."""


class SecretFile:
    """A secret in a file, without the end of its last line; read whenever it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __call__(self) -> str:
        return self._path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    def __repr__(self) -> str:
        return f"<SecretFile {self._path}>"


async def reveal(secret: Secret, what: str) -> str:
    """The text of a secret. A plain function is called in a thread, since it may read a file or ask a server.

    Raises:
        UnauthenticatedError: it could not be had; dialling again asks again.
    """
    if isinstance(secret, str):
        return secret
    try:
        # Told apart before it is called: what a coroutine function gives is awaited on the caller's own loop.
        is_coroutine = inspect.iscoroutinefunction(secret) or inspect.iscoroutinefunction(
            getattr(secret, "__call__", None)  # noqa: B004 - the method itself is looked at
        )
        found = secret() if is_coroutine else await asyncio.to_thread(_called, secret)
        text: object = await found if inspect.isawaitable(found) else found
    except Exception as error:
        # The words of an operating system's error name a file; others may hold anything, a secret too.
        why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else type(error).__name__
        raise errors.UnauthenticatedError(
            f"the {what} could not be had: {why}", subject=what, remedy="correct what provides it", retryable=True
        ) from error
    if not isinstance(text, str):
        cause = f"what provides the {what} gave a {type(text).__name__}"
        raise errors.UnauthenticatedError(cause, subject=what, remedy="let it give a str")
    return text


def _called(secret: Callable[[], str | Awaitable[str]]) -> object:
    try:
        return secret()
    except StopIteration as error:
        # A future does not take it: whoever dials would wait for ever.
        raise RuntimeError("there is no more") from error


def authorization(user: str, password: str, token: str) -> tuple[tuple[str, str], ...]:
    """The metadata of single calls."""
    if token:
        return (("authorization", f"Bearer {token}"),)
    if user or password:
        return (("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()),)
    return ()
