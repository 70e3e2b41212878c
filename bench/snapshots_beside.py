"""`python -m bench.snapshots_beside URL FOLDER cuts|exports`: one cut after another until it is killed.

With `cuts` they are confirmed without being read; it says a word when the first one is under way.
"""

import asyncio
import sys
from pathlib import Path

import sterna.admin
from sterna_audit.broker_source import BrokerSource
from sterna_audit.exporting import export
from sterna_audit.privacy import Privacy
from sterna_audit.snapshots.stores import Directory
from sterna_audit.snapshots.writing import WriterOptions

_OPTIONS = WriterOptions(Privacy("none"), None)
_WAIT_S = 25.0


async def _work(url: str, folder: Path, *, exports: bool) -> None:
    async with sterna.admin.connect(url) as admin:
        await admin.begin_cut(wait=0)
        sys.stdout.write("under way\n")
        sys.stdout.flush()
        number = 0
        while True:
            cut = await admin.begin_cut(wait=_WAIT_S)
            if cut is None:
                continue
            number += 1
            async with admin.hold_cut(cut) as held:
                if exports:
                    # Each is a root of its own: the ones before it went with the folder.
                    await export(BrokerSource(held), Directory(folder / str(number)), _OPTIONS)
                else:
                    await held.confirm(bytes(32))


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2]), exports=sys.argv[3] == "exports"))
