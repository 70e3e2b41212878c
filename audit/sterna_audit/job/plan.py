"""What a run needs besides its file's words: keys, stores and audits, all of them there before anything is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sterna.admin import Admin
from sterna.errors import SternaError
from sterna.targets import Given, Target, resolve
from sterna_resources.problems import ManifestError

from sterna_audit.auditing import Spark
from sterna_audit.audits import declared, registry
from sterna_audit.audits.declared import Declarations
from sterna_audit.audits.history import Bound, bound
from sterna_audit.audits.registry import Audit, AuditError
from sterna_audit.job.config import Broker, Config, ConfigError
from sterna_audit.privacy import PrivacyError, chosen
from sterna_audit.snapshots import keys
from sterna_audit.snapshots.keys import KeyFileError, Verifier
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Store, open_store
from sterna_audit.snapshots.writing import WriterOptions, parse_rate

T = TypeVar("T")


@dataclass(frozen=True)
class Taking:
    """How snapshots are taken.

    Attributes:
        writing: how they are written and signed.
        verifier: whose signatures count on what is there; None: there need be none.
        wait_s: see `held_cut`.
    """

    writing: WriterOptions
    verifier: Verifier | None
    wait_s: float


@dataclass(frozen=True)
class Judging:
    """How they are audited: see `Auditing` and `Spark`."""

    audits: Sequence[Audit]
    verifier: Verifier | None
    ledgers: Store | None
    manifests: Declarations | None
    start: Bound | None
    where: Spark


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        config: the file.
        run: the run's name.
        snapshots: where snapshots are.
        taking: how they are taken; None: none are.
        judging: how they are audited; None: they are not.
    """

    config: Config
    run: str
    snapshots: Store
    taking: Taking | None
    judging: Judging | None

    def place(self, broker: Broker) -> Place:
        """Where a broker's snapshots are."""
        return Place(self.config.cluster, broker.name)

    @property
    def marks(self) -> dict[str, str]:
        """What a manifest's options say of the run that took the snapshot."""
        return {"job": self.config.job, "run": self.run}

    def connect(self, broker: Broker) -> Admin:
        """The broker's admin service."""
        return Admin(_target(self.config, broker))


def _target(config: Config, broker: Broker) -> Target:
    said = config.connect
    given = {
        "user": said.user,
        "password_file": said.password_file,
        "ca": said.ca_file,
        "cert": said.certificate_file,
        "key": said.key_file,
    }
    # With a URL given, neither the environment nor a context adds to it.
    return resolve(broker.url, Given.of(given))


def _file(name: str) -> Path | None:
    return Path(name) if name else None


def made(config: Config, run: str) -> Plan:
    """What the file asks for.

    Raises:
        ConfigError: a file that it names cannot be used, or there is no such audit.
    """
    for broker in config.brokers:
        _of("connect", partial(_target, config, broker))
    return Plan(config, run, open_store(config.snapshots), _taking(config), _judging(config))


def _taking(config: Config) -> Taking | None:
    take = config.take
    if take is None:
        return None
    principals_key, sign_key = _file(take.principals_key_file), _file(take.sign_key_file)
    privacy = _of("take.principals_key_file", lambda: chosen(take.principals, principals_key))
    signer = _of("take.sign_key_file", lambda: keys.read_signer(sign_key) if sign_key is not None else None)
    others = [*take.keys, *(config.audit.keys if config.audit is not None else ())]
    verifier = _of("take.keys", lambda: keys.trusted(signer, [Path(one) for one in others]))
    return Taking(WriterOptions(privacy, signer, parse_rate(take.rate)), verifier, take.wait_s)


def _judging(config: Config) -> Judging | None:
    audit = config.audit
    if audit is None:
        return None
    return Judging(
        audits=_of("audit.jobs", lambda: registry.audits(audit.jobs)),
        verifier=_of("audit.keys", lambda: keys.trusted(None, [Path(one) for one in audit.keys])),
        ledgers=open_store(audit.ledgers) if audit.ledgers else None,
        manifests=_of("audit.manifests", lambda: declared.read(Path(audit.manifests)) if audit.manifests else None),
        start=bound(audit.start) if audit.start else None,
        where=Spark(audit.master, audit.memory, audit.conf),
    )


def _of(field: str, read: Callable[[], T]) -> T:
    """What a field stands for."""
    try:
        return read()
    except (AuditError, KeyFileError, ManifestError, PrivacyError, SternaError) as error:
        raise ConfigError(f"{field}: {error}") from error
