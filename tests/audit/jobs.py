"""Runs of `sterna-audit job` over real brokers: their file, the command in a process of its own, what came of it."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sterna
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sterna_audit.snapshots import chains
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.golden.make import KEY
from tests.audit.kept import VERIFIER
from tests.running import ANYTHING, RunningBroker, manifest

JOB = "messaging/nightly"
MakeBroker = Callable[..., RunningBroker]
#: The smallest segments.
SMALL = "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}"
#: Nobody listens there.
NOBODY = "sterna://127.0.0.1:1"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    result: dict[str, Any]
    said: str


@dataclass
class Jobs:
    """The file of a job and its folders.

    Attributes:
        folder: all of it is below.
        key: the private key's file that signs.
        brokers: by name where they are.
        fields: of the file, over those made here.
    """

    folder: Path
    key: Path
    brokers: dict[str, str]
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def snapshots(self) -> Directory:
        """Where snapshots go."""
        return Directory(self.folder / "snapshots")

    def results(self, run: str = "") -> Path:
        """Where results go."""
        return self.folder / "results" / JOB / run

    def config(self, **fields: Any) -> dict[str, Any]:
        """The file's content."""
        return {
            "job": JOB,
            "cluster": "standalone",
            "brokers": [{"name": name, "url": url} for name, url in self.brokers.items()],
            "snapshots": str(self.folder / "snapshots"),
            "take": {"principals": "none", "sign_key_file": str(self.key)},
            "audit": None,
            "results": str(self.folder / "results"),
            **self.fields,
            **fields,
        }

    def public(self) -> str:
        """The public key's file."""
        path = self.folder / "public.pem"
        path.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return str(path)

    async def start(self, run: str, **fields: Any) -> asyncio.subprocess.Process:
        """Starts a run."""
        path = self.folder / f"{run}.json"
        path.write_text(json.dumps(self.config(**fields)))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sterna_audit.main", "job", "--config", str(path), "--run", run),
            *("--result-file", str(self.folder / "last-words")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, run: str, **fields: Any) -> Ended:
        """A run from its start to its end."""
        process = await self.start(run, **fields)
        out, err = await process.communicate()
        last_words = (self.folder / "last-words").read_bytes()
        assert len(last_words) <= 4_000, last_words
        return Ended(process.returncode or 0, json.loads(last_words), (out + err).decode())

    def cuts(self, broker: str) -> list[int]:
        """The cuts that are kept of a broker, whose chain verifies."""
        chain = chains.verify(self.snapshots, Place("standalone", broker), VERIFIER)
        assert chain.findings == []
        return [one.number for one in chain.snapshots if one.manifest is not None]

    def run_of(self, broker: str, cut: int) -> str | None:
        """Of which run a cut's manifest says that it is."""
        path = self.folder / "snapshots" / Place("standalone", broker).manifest(cut)
        options = json.loads(path.read_text())["options"]
        assert options.get("job", JOB) == JOB
        run: str | None = options.get("run")
        return run


async def started(make: MakeBroker, name: str = "alpha", **flags: Any) -> tuple[RunningBroker, str]:
    """A broker of this name that serves, and where it is."""
    broker = make([manifest("Broker", name, SMALL), *ANYTHING], name=name, **flags)
    await asyncio.to_thread(broker.start)
    return broker, f"sterna://{broker.address}"


async def fill(url: str, count: int = 50, **options: Any) -> None:
    """Messages to a queue that nobody reads."""
    async with sterna.connect(url, **options) as connection:
        producer = await connection.producer("orders")
        for number in range(count):
            await producer.send_soon(f"message {number}")
        await producer.flush()
