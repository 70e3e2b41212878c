"""The picture of the report in the documents: made by a script, in a real browser where there is one."""

import struct
import zlib
from pathlib import Path

import pytest
from sterna_audit.audits.running import Run
from sterna_audit.report.page import page

from tests.audit.test_report import CLEAN, LOSS, RANGE
from tools import screenshot
from tools.fingerprints import ROOT
from tools.screenshot import ScreenshotError

pytestmark = pytest.mark.usefixtures("tier_broker")

PICTURE = ROOT / "docs" / "audits" / "report.png"
PICTURE_BYTES_MAX = 200_000


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height, as a PNG says them."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    kind, content = data[12:16], data[16:29]
    assert kind == b"IHDR"
    assert zlib.crc32(kind + content) == struct.unpack(">I", data[29:33])[0]
    width, height = struct.unpack(">II", content[:8])
    return int(width), int(height)


def has_browser() -> bool:
    """Whether this machine has one."""
    try:
        screenshot.find_browser()
    except ScreenshotError:
        return False
    return True


def test_the_documents_have_a_picture_of_a_report() -> None:
    assert size_of(PICTURE)[0] == 1_280
    assert PICTURE.stat().st_size < PICTURE_BYTES_MAX
    assert f"]({PICTURE.name})" in (PICTURE.parent / "audits.md").read_text()


@pytest.mark.timeout(180)
def test_a_browser_takes_a_picture_and_without_one_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report, picture = tmp_path / "report.html", tmp_path / "picture.png"
    report.write_text(page(Run((LOSS, CLEAN), (RANGE,), 1_790_000_000_000), []))
    if has_browser():
        assert screenshot.main([str(report), str(picture), "--width", "900", "--height", "500"]) == 0
        assert size_of(picture) == (900, 500)
        # More than an empty page.
        assert picture.stat().st_size > 10_000
        assert screenshot.main([str(tmp_path / "nowhere.html"), str(picture)]) == 1
    else:
        assert screenshot.main([str(report), str(picture)]) == 1
        assert "apt install chromium" in capsys.readouterr().err
    monkeypatch.setenv("BROWSER", "no-such-browser")
    assert screenshot.main([str(report), str(tmp_path / "none.png")]) == 1
    assert "BROWSER is no-such-browser" in capsys.readouterr().err
    assert not (tmp_path / "none.png").exists()
    # One that does not do what it is asked for is told, too.
    monkeypatch.setenv("BROWSER", "true")
    assert screenshot.main([str(report), str(tmp_path / "none.png")]) == 1
    assert "ended with 0" in capsys.readouterr().err
