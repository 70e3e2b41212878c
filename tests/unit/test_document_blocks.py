"""What a reader would type is found in a document, whole and in order."""

from pathlib import Path

from tests.kubernetes.documents import Block, blocks
from tests.kubernetes.kubectl import ROOT

DOCUMENT = """# First

Words, and `code` among them.

    one \\
        --continued

    cat <<EOF
    kind: Queue

    spec: {}
    EOF

## Second

```yaml
    env: []
```

    two
"""


def test_commands_are_told_from_words_and_from_other_languages(tmp_path: Path) -> None:
    file = tmp_path / "document.md"
    file.write_text(DOCUMENT)
    assert blocks(file) == [
        Block("First", "shell", "one \\\n    --continued\n\ncat <<EOF\nkind: Queue\n\nspec: {}\nEOF\n"),
        Block("Second", "yaml", "    env: []\n"),
        Block("Second", "shell", "two\n"),
    ]


def test_readme_and_quick_start_install_the_same() -> None:
    readme, quick_start = (
        [
            line
            for block in blocks(ROOT / name)
            for line in block.text.splitlines()
            if line.startswith("helm upgrade --i")
        ]
        for name in ("README.md", "docs/kubernetes/quickstart.md")
    )
    assert len(readme) == 3
    assert readme == quick_start
