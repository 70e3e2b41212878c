"""Finds the Java that Spark runs on, and says what to do where there is none that it can use."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
_PATIENCE_S = 60
_REMEDY = (
    f"install Java {OLDEST} or later (Debian: openjdk-17-jre-headless), and name it by JAVA_HOME if it is not on PATH"
)
# 1.8.0_412 is Java 8; later ones begin with what they are.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaError(Exception):
    """There is no Java that Spark can run on; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java.

    Attributes:
        program: its path.
        version: the first number of its version.
    """

    program: Path
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java of JAVA_HOME, or else of PATH, as Spark looks for it.

    Raises:
        JavaError: there is none, or it is too old.
    """
    home = environment.get("JAVA_HOME")
    if home:
        program: str | None = str(Path(home) / "bin" / "java")
        where = f"JAVA_HOME is {home}"
    else:
        program = shutil.which("java", path=environment.get("PATH"))
        where = "there is no program java on PATH"
    if program is None or not os.access(program, os.X_OK):
        raise JavaError(f"Spark runs on Java, and {where}{', where bin/java is no program' if home else ''}: {_REMEDY}")
    try:
        ran = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{program} does not run: {error}. {_REMEDY}") from error
    found = _VERSION.search(ran.stdout)
    if ran.returncode != 0 or found is None:
        said = " ".join(ran.stdout.split())[:200]
        raise JavaError(f"{program} -version says no version: {said!r}. {_REMEDY}")
    if int(found[1]) < OLDEST:
        raise JavaError(f"{program} is Java {found[1]}, too old for Spark: {_REMEDY}")
    return Java(Path(program), int(found[1]))
