"""The check of links in Markdown."""

from pathlib import Path

import pytest

from tools import links

PAGE = """# Top
## What `send` does, and why
## Twice
## Twice
[file](other.md) [heading](#what-send-does-and-why) [second](other.md#twice-1) [out](https://example.com/x)
`[not](a-link.md)`
```
[nor](this.md)
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text(PAGE)
    return tmp_path / "page.md"


def test_links_to_files_and_headings_that_are_there_are_fine(page: Path) -> None:
    page.write_text(PAGE)
    assert list(links.problems_of(page, PAGE)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](gone.md)", "page.md: the link to gone.md leads to no file"),
        ("[a](other.md#nothing)", "page.md: other.md#nothing has no such heading"),
        ("[a](#nothing)", "page.md: #nothing has no such heading"),
        ("[a]: gone/too.md", "page.md: the link to gone/too.md leads to no file"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(page: Path, text: str, fault: str) -> None:
    page.write_text(text)
    assert list(links.problems_of(page, text)) == [fault]
