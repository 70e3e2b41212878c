"""Makes the golden snapshots of today's version of the schema: `python -m tests.audit.golden.make FOLDER`.

What stands beside this file is never made again for a version that was released: later versions have to read it. The
key that signs is known to everybody.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sterna_audit.exporting import export
from sterna_audit.privacy import Privacy
from sterna_audit.snapshots.keys import Signer
from sterna_audit.snapshots.stores import Directory
from sterna_audit.snapshots.writing import WriterOptions

from tests.audit.story import Story

GOLDEN = Path(__file__).parent
KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"golden").digest())
PRINCIPALS_KEY = b"golden golden golden"
CUTS = 2


async def make(root: Path) -> None:
    """Two cuts of a story of its own, and the public key that checks them."""
    story = Story(seed=20261123)
    options = WriterOptions(Privacy("hashed", PRINCIPALS_KEY), Signer(KEY))
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    Directory(root).put("key.pub.pem", public)
    for _ in range(CUTS):
        story.live(120)
        await export(story.cut(), Directory(root), options)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
