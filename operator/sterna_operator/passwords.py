"""Passwords from Secrets, compared with the hashes that stand and made into new ones.

Comparing takes tens of milliseconds of a core on purpose; so what a version of a Secret was found to be is remembered
(by a digest of the hash, never the password), two comparisons run at once at most, and none on the event loop.
"""

import asyncio
from collections.abc import Sequence

from sterna_etcd.records import Credential
from sterna_resources.passwords import hash_password

_AT_ONCE = 2
_REMEMBERED_MAX = 50_000


class PasswordFaultError(Exception):
    """There is no usable password. `reason` is a condition's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Passwords:
    """Looks at passwords; remembers what it found."""

    def __init__(self) -> None:
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._found: dict[tuple[str, str, str], str] = {}

    async def look(
        self, uid: str, version: str, key: str, password: str, standing: Sequence[Credential]
    ) -> tuple[int | None, str]:
        """Which of the standing credentials is this password's; or None and a new hash.

        Raises:
            PasswordFaultError: it cannot be one.
        """
        known = self._found.get((uid, version, key))
        hashes = [one.argon2 for one in standing]
        if known is not None:
            return (hashes.index(known), "") if known in hashes else (None, known)
        async with self._gate:
            position, fresh = await asyncio.to_thread(_look, password, hashes)
        if len(self._found) >= _REMEMBERED_MAX:
            self._found.clear()
        self._found[uid, version, key] = fresh or hashes[position or 0]
        return position, fresh


def _look(password: str, hashes: list[str]) -> tuple[int | None, str]:
    # Late: the library is the extra `operator`'s.
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    hasher = PasswordHasher()
    for position, one in enumerate(hashes):
        try:
            if hasher.verify(one, password):
                return position, ""
        except (VerificationError, InvalidHashError):
            continue
    try:
        return None, hash_password(password)
    except ValueError as error:
        raise PasswordFaultError("Invalid", f"the Secret's password cannot be used: {error}") from error
