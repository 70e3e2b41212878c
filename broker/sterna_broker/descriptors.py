"""Open files: how many the process may have, and how many of them are left to clients.

A connection is an open file, and so is a segment of the log. Without a bound on connections, clients that only connect
would take the store its files. So the limit is raised as far as it may be, and connections are refused well below it.
"""

import resource
from dataclasses import dataclass

import structlog

_log = structlog.get_logger(part="descriptors")

# What the kernel itself gives out at most, unless it was told otherwise (fs.nr_open).
_LIMIT_MAX = 1_048_576
# The log, reads of old segments, files of the configuration, etcd's channel, the loops' own.
_OWN = 256
_MONITOR_MAX = 64


@dataclass(frozen=True)
class Shares:
    """How many connections each port takes at once."""

    messaging: int
    monitor: int


def raise_limit() -> None:
    """Raises the soft limit of open files to the hard one. For a program at its start, since it is the process's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_number(hard), _LIMIT_MAX)
    if _number(soft) < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            _log.warning("open_files_not_raised", limit=soft, wanted=wanted, error=str(error))


def limit() -> int:
    """How many files the process may have open."""
    return min(_number(resource.getrlimit(resource.RLIMIT_NOFILE)[0]), _LIMIT_MAX)


def _number(value: int) -> int:
    return _LIMIT_MAX if value == resource.RLIM_INFINITY else value


def shares(files: int, connections: int) -> Shares:
    """What is left to clients of `files` open files; `connections`: how many they may have by the configuration."""
    monitor = min(_MONITOR_MAX, files // 8)
    left = max(files - monitor - min(_OWN, files // 2), 1)
    if left < connections:
        _log.warning(
            "few_open_files",
            open_files=files,
            connections=left,
            configured=connections,
            remedy="raise the hard limit of open files (ulimit -Hn, LimitNOFILE), or set limits.connections lower",
        )
    return Shares(messaging=left, monitor=monitor)
