"""The users file of `--users FILE`: YAML, a name and its argon2id hashes.

    alice: $argon2id$v=19$m=19456,t=2,p=1$…
    bob:
      - $argon2id$…
      - argon2: $argon2id$…
        not_after: 2027-01-31T12:00:00Z
    carol: []          # no password: a client certificate with this name may do

Read as a whole or not at all; errors name file, line and user, and never repeat a value.
"""

import datetime
from pathlib import Path
from typing import Any

from sterna_resources.problems import ManifestError, Problem
from sterna_resources.yaml_documents import Document, documents

from sterna_broker.access.errors import AccessError
from sterna_broker.access.users import Credential, RecordError, User, read_credential, read_record

FILE_BYTES_MAX = 64 * 1024 * 1024


def read_users(path: Path) -> dict[str, User]:
    """The users of a file.

    Raises:
        AccessError: it cannot be read or used.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise AccessError(f"--users {path}: is larger than {FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(f"--users {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise AccessError(f"--users {path}: is no UTF-8 text") from error
    try:
        return parse_users(text, str(path))
    except ManifestError as error:
        raise AccessError(f"--users {path}: cannot be used:\n{error}") from error


def parse_users(text: str, source: str) -> dict[str, User]:
    """The users of a text; `source` names it in errors.

    Raises:
        ManifestError: with all that is wrong.
    """
    users: dict[str, User] = {}
    problems: list[Problem] = []
    for number, document in enumerate(documents(text, source)):
        problems += document.problems
        if number or not isinstance(document.value, dict | None):
            fault = "a users file is one mapping from names to hashes"
            problems.append(Problem(document.place(()), "", fault))
            continue
        for name, value in (document.value or {}).items():
            try:
                users[name] = _user(name, value)
            except RecordError as error:
                problems.append(_problem(document, name, str(error)))
    if problems:
        raise ManifestError(problems)
    return users


def _user(name: str, value: Any) -> User:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise RecordError("is neither a hash nor a list of hashes")
    credentials = []
    for index, one in enumerate(listed):
        where = f"hash {index + 1}"
        credentials.append(_credential({"argon2": one} if isinstance(one, str) else one, where))
    shape = [{"argon2": one.argon2, "not_after_ms": one.not_after_ms} for one in credentials]
    return read_record(name, {"credentials": shape})


def _credential(value: Any, where: str) -> Credential:
    if isinstance(value, dict) and "not_after" in value:
        value = dict(value)
        try:
            moment = datetime.datetime.fromisoformat(str(value.pop("not_after")))
        except ValueError as error:
            raise RecordError(f"{where}: 'not_after' is no time such as 2027-01-31T12:00:00Z") from error
        if moment.tzinfo is None:
            raise RecordError(f"{where}: 'not_after' names no time zone: end it with Z, or with an offset")
        value["not_after_ms"] = int(moment.timestamp() * 1000)
    return read_credential(value, where)


def _problem(document: Document, name: str, message: str) -> Problem:
    return Problem(document.place((name,)), name[:64], message)
