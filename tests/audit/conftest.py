"""What the tests of snapshots share: a story's snapshots, keys, one Spark, a server of S3's interface."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pyarrow import fs
from pyspark.sql import SparkSession
from sterna_audit.snapshots.stores import Directory
from sterna_audit.spark import session

from tests.audit.golden.make import KEY
from tests.audit.jobs import Jobs
from tests.audit.kept import Kept
from tests.audit.lives import Life, live
from tests.audit.sessions import settings
from tests.support.api_server import free_port
from tests.waiting import eventually_blocking
from tools.fingerprints import ROOT

#: Who we are, to a server of S3's interface that lets everybody in, and that no machine is asked for another.
BUCKET_KEYS = {
    "AWS_ACCESS_KEY_ID": "key-of-a-test",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LIFE_SEED = 5
LIVES_SEEDS = (6, 7, 8)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A story's snapshots in a folder."""
    return Kept(Directory(tmp_path / "snapshots"))


@pytest.fixture
def private_key(tmp_path: Path) -> Path:
    """The story's private key as a file."""
    path = tmp_path / "key.pem"
    path.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


@pytest.fixture
def jobs(tmp_path: Path, private_key: Path) -> Jobs:
    """A job without brokers."""
    return Jobs(tmp_path, private_key, {})


@pytest.fixture(scope="session")
def spark(tier_spark: None) -> Iterator[SparkSession]:
    """One Spark on this machine for all tests of a process."""
    with pytest.MonkeyPatch.context() as patch:
        # The JVM hands its environment on to the Python of its executors.
        for name, value in BUCKET_KEYS.items():
            patch.setenv(name, value)
        running = session("local[2]", memory="1g", settings=settings())
    yield running
    running.stop()


@pytest.fixture(scope="session")
def life(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A clean history of a real engine; whoever changes it copies it."""
    return live(tmp_path_factory.mktemp("life"), LIFE_SEED)


@pytest.fixture(scope="session")
def lives(tier_broker: None, tmp_path_factory: pytest.TempPathFactory, life: Life) -> Life:
    """Several of them in one folder, one broker each."""
    folder = tmp_path_factory.mktemp("lives")
    whole = life.copied(folder / "all")
    for seed in LIVES_SEEDS:
        one = live(folder / str(seed), seed)
        shutil.copytree(one.root / str(one.place), whole.root / str(one.place))
    return whole


@pytest.fixture(scope="session")
def s3_server(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of a server of S3's interface, in a process of its own with what it needs."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build" / "moto"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually_blocking(answers, timeout_s=60.0, what="the server of S3's interface", pause_s=0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a prefix in a bucket of the test's own; who we are is in the environment."""
    for name, value in BUCKET_KEYS.items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid4().hex[:12]}"
    system = fs.S3FileSystem(endpoint_override=s3_server, scheme="http", region="us-east-1", allow_bucket_creation=True)
    system.create_dir(name)
    return f"s3://{name}/snapshots?endpoint={s3_server}&scheme=http&region=us-east-1"
