"""A story whose cuts are exported into a store."""

import asyncio
from dataclasses import dataclass, field

from sterna_audit.exporting import Exported, export
from sterna_audit.privacy import Privacy
from sterna_audit.snapshots import chains
from sterna_audit.snapshots.chains import Chain
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Signer, Verifier
from sterna_audit.snapshots.stores import Store
from sterna_audit.snapshots.writing import WriterOptions

from tests.audit.golden.make import KEY
from tests.audit.story import PLACE, Story

SIGNER = Signer(KEY)
VERIFIER = Verifier([KEY.public_key()])
PLAIN = WriterOptions(Privacy("plain"), SIGNER)


@dataclass
class Kept:
    """A story, and where its cuts are kept."""

    store: Store
    story: Story = field(default_factory=Story)
    options: WriterOptions = PLAIN

    def cuts(self, count: int, steps: int = 30) -> list[Exported]:
        """Goes on and exports so many cuts."""
        found = []
        for _ in range(count):
            self.story.live(steps)
            found.append(asyncio.run(export(self.story.cut(), self.store, self.options, verifier=VERIFIER)))
        return found

    def chain(self, first: int | None = None, last: int | None = None) -> Chain:
        """All that is found of them."""
        return chains.verify(self.store, PLACE, VERIFIER, first=first, last=last)

    def faults(self) -> list[tuple[str, str]]:
        """Of each fault the file, from the cut on, and what it is."""
        return [told(one) for one in self.chain().findings]


def told(finding: Finding) -> tuple[str, str]:
    """File and kind of a fault."""
    assert finding.why
    return finding.file.removeprefix(f"{PLACE}/"), finding.what
