"""Starts the JVM that Spark runs in, where pyspark would do it by itself: beside gRPC, and without a shell.

pyspark runs Python in the forked child, which gRPC's threads and handlers do not survive, and scripts of bash, which an
image need not have. Here nothing runs in the child, and where there is no bash Spark's own launcher is asked for the
command that its scripts would run.
"""

import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from sterna_audit import surroundings
from sterna_audit.java import Java, JavaError

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = ("-Xmx128m", "org.apache.spark.launcher.Main")
_CORE = re.compile(r"spark-core_([\d.]+)-")
# What comes before it was said by the JVM, and is not the command.
_BEGINS = b"\0\n"
_PATIENCE_S = 120.0
_AGAIN_S = 0.05
_NUMBER = struct.Struct("!i")

# The JVM ends when what it reads from does: it is kept for as long as this process.
_running: list[subprocess.Popen[bytes]] = []


class GatewayError(JavaError):
    """The JVM did not start; the text says why."""


@contextmanager
def gateway(java: Java, settings: Mapping[str, str]) -> Iterator[None]:
    """A JVM to which pyspark connects, if it has none: within this a session is made.

    Args:
        java: which Java.
        settings: of Spark; some of them count only before the JVM starts.

    Raises:
        GatewayError: it did not start.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    port, secret = _started(java, settings)
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        yield
    finally:
        # A later session of this process finds the gateway itself; executors' Python has no use for it.
        for name in told:
            del os.environ[name]


def _started(java: Java, settings: Mapping[str, str]) -> tuple[int, str]:
    """Starts the JVM: port and secret of its gateway."""
    home = _find_spark_home()
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    arguments += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="sterna-audit-") as folder:
        told = Path(folder) / "gateway"
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "PYTHONHASHSEED": "0",
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        }
        if shutil.which("bash") is not None:
            command = [f"{home}/bin/spark-submit", *arguments]
        else:
            more, command = _command(java, home, arguments, environment)
            environment |= more
        # A session of its own keeps the terminal's SIGINT from it, as Spark wants.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        _running.append(process)
        return _told(process, told)


def _told(process: "subprocess.Popen[bytes]", file: Path) -> tuple[int, str]:
    until_s = surroundings.monotonic_s() + _PATIENCE_S
    # It is there whole at once: the JVM writes it elsewhere, and gives it its name then.
    while not file.exists():
        if process.poll() is not None:
            raise GatewayError(f"the JVM ended with {process.returncode}: what it said stands above")
        if surroundings.monotonic_s() >= until_s:
            process.kill()
            raise GatewayError(f"the JVM has not started in {_PATIENCE_S:.0f} s")
        surroundings.wait(_AGAIN_S)
    data = file.read_bytes()
    (port,), (length,) = _NUMBER.unpack_from(data), _NUMBER.unpack_from(data, _NUMBER.size)
    secret = data[2 * _NUMBER.size :]
    if len(secret) != length:
        raise GatewayError("the JVM says how it is reached, and not all of it")
    return port, secret.decode()


def _command(
    java: Java, home: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """What Spark's scripts would run, as its launcher says it, and what the environment has to have for that."""
    memory, main = _LAUNCHER
    asked = [str(java.program), memory, "-cp", f"{home}/jars/*", main, _SUBMIT, *arguments]
    scala = next((found[1] for jar in sorted(Path(home, "jars").iterdir()) if (found := _CORE.match(jar.name))), "")
    # The launcher takes JAVA_HOME, or its own Java; which Scala it is the scripts would say.
    ran = subprocess.run(
        asked,
        env={**environment, "SPARK_SCALA_VERSION": scala},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    said, mark, command = ran.stdout.rpartition(_BEGINS)
    if ran.returncode or not mark:
        raise GatewayError(f"Spark's launcher ended with {ran.returncode}: {said.decode(errors='replace')[:300]}")
    parts = command.decode().split("\0")[:-1]
    if parts[0] != "env":
        return {}, parts
    first = next(place for place, part in enumerate(parts[1:], 1) if "=" not in part)
    return dict(part.split("=", 1) for part in parts[1:first]), parts[first:]
