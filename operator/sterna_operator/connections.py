"""Room for many connections in one process; `running` makes it before the first one.

Every Secret that an object refers to has a watch of its own, by its name, and each watch is a connection: rights are
given name by name, and a watch of a whole namespace would need the right to read all of them. A thousand Users are a
thousand connections. Two things are against that: asyncio sets a quarter of a MiB aside for each connection with TLS,
whatever comes on it, and many container runtimes start processes with at most 1,024 open files.
"""

import asyncio.sslproto
import resource

import structlog

log = structlog.get_logger(__name__)

# Twice what one record of TLS holds at most. More is read in several turns.
_TLS_BUFFER_BYTES = 32 * 1024
_OPEN_FILES = 65_536


def make_room() -> None:
    """Has connections with TLS take less memory, and lets the process have as many as it may; all later ones."""
    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        log.info("more open files allowed", before=soft, now=wanted)
