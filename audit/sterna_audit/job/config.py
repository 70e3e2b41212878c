"""The file that `sterna-audit job` is given: JSON, of which each field is checked and no other is taken.

docs/audits/job.md describes it for users. Secrets are in files of their own, which it names.
"""

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from sterna.errors import SternaError
from sterna.urls import parse_url

from sterna_audit.audits.history import bound
from sterna_audit.snapshots.layout import is_name
from sterna_audit.snapshots.pruning import parse_keep
from sterna_audit.snapshots.stores import open_store
from sterna_audit.snapshots.writing import parse_rate

_FILE_BYTES_MAX = 1 << 20
_URI_BYTES_MAX = 1_000
_BROKERS_MAX = 1_000
_SHOWN = 5
_JOB = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SETTING = re.compile(r"spark\.[A-Za-z0-9._-]+")
_MEMORY = re.compile(r"(\d{1,9}[kmgtKMGT])?")


class ConfigError(ValueError):
    """The file, or what it names, cannot be used; the text names the field and says why."""


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("this cannot be the name of a folder")
    return text


def _job(text: str) -> str:
    if not _JOB.fullmatch(text):
        raise ValueError("this is not as namespace/name")
    return text


def _uri(text: str) -> str:
    if len(text.encode(errors="replace")) > _URI_BYTES_MAX or not text.isprintable():
        raise ValueError(f"a URI has at most {_URI_BYTES_MAX} bytes, all of them printable")
    open_store(text)
    return text


def _url(text: str) -> str:
    try:
        options = parse_url(text).options
    except SternaError as error:
        raise ValueError(str(error)) from None
    if options:
        raise ValueError("a broker's URL has no options here: who connects is said in connect")
    return text


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def _keep(text: str) -> str:
    if text:
        parse_keep(text)
    return text


def _bound(text: str) -> str:
    if text:
        bound(text)
    return text


def _conf(settings: dict[str, str]) -> dict[str, str]:
    for key in settings:
        if not _SETTING.fullmatch(key):
            raise ValueError(f"{key[:80]!r} is not as spark.name")
    return settings


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise ValueError("this is no size as 2g or 500m")
    return text


_Name = Annotated[str, AfterValidator(_name)]
_Uri = Annotated[str, AfterValidator(_uri)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Broker(_Fields):
    """A broker: its own name, and where it is."""

    name: _Name
    url: Annotated[str, AfterValidator(_url)]


class Connect(_Fields):
    """Who connects, and whom it trusts. Each is the name of a file but `user`; empty: none."""

    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @model_validator(mode="after")
    def _are_whole(self) -> "Connect":
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file go together")
        if bool(self.certificate_file) != bool(self.key_file):
            raise ValueError("certificate_file and key_file go together")
        return self


class Take(_Fields):
    """How snapshots are taken: the options of `sterna snapshot create`."""

    principals: Literal["hashed", "plain", "none"] = "hashed"
    principals_key_file: str = ""
    sign_key_file: str = ""
    #: Public keys besides that of `sign_key_file` whose signatures count on what is there.
    keys: tuple[str, ...] = ()
    unsigned: bool = False
    rate: Annotated[str, AfterValidator(_rate)] = ""
    wait_s: Annotated[int, Field(ge=0, le=86_400)] = 600

    @model_validator(mode="after")
    def _are_whole(self) -> "Take":
        if bool(self.sign_key_file) == self.unsigned:
            raise ValueError("either sign_key_file or unsigned has to be said")
        if bool(self.principals_key_file) != (self.principals == "hashed"):
            raise ValueError("principals_key_file is needed for hashed principals, and for these alone")
        return self


class Audit(_Fields):
    """What is audited: the options of `sterna-audit run`."""

    jobs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    unsigned: bool = False
    ledgers: str = ""
    manifests: str = ""
    master: Annotated[str, Field(min_length=1)] = "local[*]"
    memory: Annotated[str, AfterValidator(_memory)] = ""
    conf: Annotated[dict[str, str], AfterValidator(_conf)] = Field(default_factory=dict)
    start: Annotated[str, Field(alias="from"), AfterValidator(_bound)] = ""

    @model_validator(mode="after")
    def _are_whole(self) -> "Audit":
        if bool(self.keys) == self.unsigned:
            raise ValueError("either keys or unsigned has to be said")
        if self.ledgers:
            _uri(self.ledgers)
        return self


class Keep(_Fields):
    """What is kept: snapshots as `sterna snapshot prune --keep` has it, results by their number. Nothing said: all."""

    snapshots: Annotated[str, AfterValidator(_keep)] = ""
    results: Annotated[int, Field(ge=1)] | None = None


class Config(_Fields):
    """The whole file."""

    job: Annotated[str, AfterValidator(_job)]
    cluster: _Name
    brokers: Annotated[tuple[Broker, ...], Field(min_length=1, max_length=_BROKERS_MAX)]
    connect: Connect = Connect()
    snapshots: _Uri
    take: Take | None = None
    audit: Audit | None = None
    results: _Uri
    keep: Keep = Keep()

    @model_validator(mode="after")
    def _are_whole(self) -> "Config":
        names = [broker.name for broker in self.brokers]
        if len(set(names)) != len(names):
            raise ValueError("brokers has a name twice")
        if self.take is None and self.audit is None:
            raise ValueError("neither take nor audit is there, so that there is nothing to do")
        if self.keep.snapshots and self.take is None:
            raise ValueError("keep.snapshots needs take, which says who signs what is gone")
        if open_store(self.results).uri.rstrip("/") == open_store(self.snapshots).uri.rstrip("/"):
            raise ValueError("results is where the snapshots are: give it a place of its own")
        return self


def read(path: Path) -> Config:
    """The file's content.

    Raises:
        ConfigError: it cannot be read, or a field of it is wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {_FILE_BYTES_MAX} bytes")
    try:
        return Config.model_validate_json(data)
    except ValidationError as error:
        # What was found there is not repeated: it may be a secret that stands in the wrong place.
        faults = error.errors(include_input=False, include_url=False, include_context=False)
        told = [_told(one["loc"], one["type"], one["msg"]) for one in faults[:_SHOWN]]
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise ConfigError(f"{path}: {'; '.join(told)}{more}") from None


def _told(steps: tuple[Any, ...], kind: str, text: str) -> str:
    field = ""
    for step in steps:
        field += f"[{step}]" if isinstance(step, int) else f"{'.' if field else ''}{step}"
    if kind == "extra_forbidden":
        text = "there is no such field"
    text = text.removeprefix("Value error, ")
    return f"{field[:200]}: {text}" if field else text


def check_run(name: str) -> str:
    """A run's name; a time as schedulers write it (`2026-11-24T00:00:00Z`) becomes one (`20261124T0000Z`).

    Raises:
        ConfigError: it cannot be one.
    """
    if ":" in name:
        try:
            moment = dt.datetime.fromisoformat(name)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(dt.UTC).strftime("%Y%m%dT%H%MZ")
    if not _RUN.fullmatch(name):
        raise ConfigError(f"--run: {name[:80]!r} is no name of letters, digits, '.', '_' and '-', at most 100 of them")
    return name
