"""Contexts: brokers by name, with credentials, in a file of one's own.

    current: production
    contexts:
      production:
        url: sternas://broker.example:7222
        user: alice
        password_file: /etc/sterna/alice.password
        ca: /etc/ssl/example-ca.pem

The file is `$XDG_CONFIG_HOME/sterna/contexts.yaml`, which is `~/.config/sterna/contexts.yaml` as a rule. Reading it
needs the package ruamel.yaml, which the command line has; without a file nothing is needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna import errors

KEYS = ("url", "user", "password", "password_file", "ca", "cert", "key", "server_name")
_OTHERS_MODE = 0o077


@dataclass(frozen=True, slots=True)
class Context:
    """One broker; `values` has what is besides the URL."""

    name: str
    url: str = field(repr=False)
    values: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class Contexts:
    """The file's content."""

    path: Path
    current: str = ""
    by_name: dict[str, Context] = field(default_factory=dict)

    def context(self, name: str) -> Context:
        """The context of a name.

        Raises:
            InvalidArgumentError: there is none.
        """
        found = self.by_name.get(name)
        if found is None:
            known = f"known are {', '.join(sorted(self.by_name))}" if self.by_name else f"{self.path} holds none"
            cause = f"there is no context {name!r}"
            raise errors.InvalidArgumentError(cause, subject="context", remedy=known)
        return found

    def current_context(self, name: str = "") -> Context | None:
        """The context of a name, or else the one in use, if any."""
        chosen = name or self.current
        return self.context(chosen) if chosen else None


def default_path() -> Path:
    """Where the file is."""
    configured = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path.home() / ".config") / "sterna" / "contexts.yaml"


def load(path: Path | None = None) -> Contexts:
    """Reads the file; one that is not there holds nothing.

    Raises:
        InvalidArgumentError: it cannot be used, or others can read passwords in it.
    """
    path = path or default_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, "cannot be read") from error
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ModuleNotFoundError as error:
        cause = f"reading {path} needs the package ruamel.yaml"
        raise errors.InvalidArgumentError(cause, subject="context", remedy="pip install 'sterna[cli]'") from error
    try:
        found = _read(path, YAML(typ="safe", pure=True).load(text))
    except YAMLError:
        # Its words repeat lines of the file, and there may be a password in them.
        raise _unusable(path, "is not valid YAML") from None
    if path.stat().st_mode & _OTHERS_MODE and any("password" in one.values for one in found.by_name.values()):
        cause = f"{path} holds a password, and others may read it"
        raise errors.InvalidArgumentError(cause, subject="context", remedy=f"chmod 600 {path}")
    return found


def save(contexts: Contexts) -> None:
    """Writes the file, for nobody else to read.

    Raises:
        OSError: it cannot be written.
    """
    from ruamel.yaml import YAML

    documents: dict[str, Any] = {
        name: {"url": one.url, **{key: one.values[key] for key in KEYS if one.values.get(key)}}
        for name, one in sorted(contexts.by_name.items())
    }
    contexts.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Under a name of its own: of two that save at once neither may have the other's half in place.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{contexts.path.name}.", dir=contexts.path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            writer = YAML(typ="safe", pure=True)
            writer.default_flow_style = False
            writer.dump({"current": contexts.current, "contexts": documents}, file)
            file.flush()
            os.fsync(file.fileno())  # or a loss of power may leave a name for nothing
        Path(temporary).replace(contexts.path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path, document: Any) -> Contexts:
    document = {} if document is None else document
    if not isinstance(document, dict) or set(document) - {"current", "contexts"}:
        raise _unusable(path, "holds more, or else, than 'current' and 'contexts'")
    named = document.get("contexts") or {}
    if not isinstance(named, dict):
        raise _unusable(path, "has contexts that are no mapping from names")
    contexts = Contexts(path, str(document.get("current") or ""))
    for name, values in named.items():
        if not isinstance(values, dict) or not values.get("url"):
            raise _unusable(path, f"has a context {name} without a url")
        if unknown := sorted(str(key) for key in values if key not in KEYS):
            raise _unusable(path, f"has a context {name} with the unknown {unknown[0]}; known are {', '.join(KEYS)}")
        texts = {str(key): str(value) for key, value in values.items() if value is not None}
        contexts.by_name[str(name)] = Context(str(name), texts.pop("url"), texts)
    return contexts


def _unusable(path: Path, why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"{path} {why}", subject="context", remedy="see docs/security.md")
