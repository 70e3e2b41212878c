"""Takes a picture of a report of audits, as a browser shows it: `python -m tools.screenshot REPORT.html PICTURE.png`.

The browser is Chromium or Chrome (Debian: `apt install chromium`), from PATH or named by BROWSER. It runs without a
window, reaches no network, and what it keeps goes with it. docs/audits/report.png was made so, of the demo with a loss
planted (the engine of tests can do that), of which twelve thousand flights were sent:

    STERNA_PLANTED_FAULT=lose-message:12345 STERNA_PLANTED_TOLD=build/victim AUDIT=1 make demo
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 120
_PNG = b"\x89PNG\r\n\x1a\n"


class ScreenshotError(Exception):
    """There is no picture; the text says why."""


def find_browser(environment: Mapping[str, str] = os.environ) -> str:
    """The browser's program.

    Raises:
        ScreenshotError: there is none.
    """
    named = environment.get("BROWSER")
    for name in (named,) if named else _PROGRAMS:
        found = shutil.which(name, path=environment.get("PATH"))
        if found is not None:
            return found
    lacking = f"BROWSER is {named}, which is no program" if named else "there is neither Chromium nor Chrome on PATH"
    raise ScreenshotError(f"{lacking} (Debian: apt install chromium)")


def take(browser: str, page: Path, picture: Path, width: int, height: int) -> None:
    """Takes it, of the page's upper part.

    Raises:
        ScreenshotError: the browser does not make one.
    """
    if not page.is_file():
        raise ScreenshotError(f"there is no page {page}")
    with tempfile.TemporaryDirectory(prefix="sterna-screenshot-") as kept:
        made = Path(kept) / "picture.png"
        command = [
            *(browser, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-sync"),
            # Its own sandbox wants an account that is not root; the page runs no script.
            *(("--no-sandbox",) if os.geteuid() == 0 else ()),
            *("--force-device-scale-factor=1", f"--window-size={width},{height}"),
            *(f"--user-data-dir={kept}/profile", f"--screenshot={made}", page.resolve().as_uri()),
        ]
        try:
            ran = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False, env=_home(kept))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ScreenshotError(f"{browser}: {error}") from error
        if ran.returncode != 0 or not made.is_file() or not made.read_bytes().startswith(_PNG):
            said = " ".join(ran.stderr.decode(errors="replace").split())[-300:]
            raise ScreenshotError(f"{browser} ended with {ran.returncode}: {said}")
        shutil.copyfile(made, picture)


def _home(folder: str) -> dict[str, str]:
    """The environment with a home of its own, so that nothing of the browser's stays."""
    return {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}


def main(arguments: Sequence[str] | None = None) -> int:
    """Takes a picture; 0 if there is one."""
    parser = argparse.ArgumentParser(prog="tools.screenshot", description="Takes a picture of a report of audits.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1_280)
    parser.add_argument("--height", type=int, default=1_000)
    chosen = parser.parse_args(arguments)
    try:
        take(find_browser(), chosen.page, chosen.picture, chosen.width, chosen.height)
    except ScreenshotError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
