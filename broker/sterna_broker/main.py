"""The process behind `sterna broker`: runs a node until it is told to stop.

What can go wrong becomes words on stderr and an exit status.

Signals: SIGTERM and SIGINT drain and stop, a second one hurries; SIGHUP reads the configuration again. One line goes
to stdout when the broker serves; everything else is logged to stderr.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import structlog
import uvloop
from sterna_core import EngineError, StoreError
from sterna_resources.problems import ManifestError

from sterna_broker import descriptors, logs
from sterna_broker.access.errors import AccessError
from sterna_broker.addresses import AddressError
from sterna_broker.cluster.kept import KeptError
from sterna_broker.cluster.naming import NameTakenError
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions
from sterna_broker.server.listening import ListenError

_log = structlog.get_logger(part="broker")

STRETCHES_TOLD = 5
"""Places in which it is unknown what was lost that the first line names; the log has all of them."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2


def run(options: BrokerOptions) -> int:
    """Runs a broker to its end; the process's exit status.

    0: stopped as told. 1: could not start or go on (store, ports). 2: the configuration is wrong.
    """
    logs.configure(options.log_format, options.log_level)
    descriptors.raise_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(options))
    except ManifestError as error:
        return _failed(EXIT_CONFIGURATION, "the configuration cannot be used", str(error))
    except AccessError as error:
        return _failed(EXIT_CONFIGURATION, "certificates or users cannot be used", str(error))
    except KeptError as error:
        return _failed(EXIT_CONFIGURATION, "the configuration kept from the cluster cannot be used", str(error))
    except NameTakenError as error:
        return _failed(EXIT_FAILED, "the broker cannot join the cluster", str(error))
    except AddressError as error:
        return _failed(EXIT_CONFIGURATION, "the configuration cannot be used", str(error))
    except StoreError as error:
        return _failed(EXIT_FAILED, "the store cannot be opened", f"{error.message}\n{error.remedy}".rstrip())
    except EngineError as error:
        text = f"{error.subject}: {error.message}\n{error.remedy}".rstrip()
        return _failed(EXIT_CONFIGURATION, "the engine refuses the configuration", text)
    except ListenError as error:
        return _failed(EXIT_FAILED, "the broker cannot listen", str(error))
    except OSError as error:
        return _failed(EXIT_FAILED, "the data folder cannot be used", str(error))


async def _run(options: BrokerOptions) -> int:
    loop = asyncio.get_running_loop()
    node = Node(options)
    told_to_stop = asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()

    def stop() -> None:
        if told_to_stop.is_set():
            node.hurry()
        told_to_stop.set()

    def reload() -> None:
        task = loop.create_task(node.told_to_reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    stop_task = loop.create_task(told_to_stop.wait())
    starting = loop.create_task(node.start())
    await asyncio.wait((starting, stop_task), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # It may wait for etcd for ever, or read a large store. Whoever says it again does not want to wait for that.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        _log.info("stopped_before_it_served")
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return EXIT_OK
    await starting
    await _announce(node)
    fail_task = loop.create_task(node.failed.wait())
    await asyncio.wait((stop_task, fail_task), return_when=asyncio.FIRST_COMPLETED)
    for task in (stop_task, fail_task):
        task.cancel()
    if node.failed.is_set():
        node.hurry()
    await node.stop()
    return _failed(EXIT_FAILED, "the broker cannot go on", node.failure) if node.failed.is_set() else EXIT_OK


async def _announce(node: Node) -> None:
    """The one line on stdout, and the ready file."""
    print(ready_line(node), flush=True)
    if node.options.ready_file is not None:
        await asyncio.to_thread(_write_ready_file, node, node.options.ready_file)


def _write_ready_file(node: Node, file: Path) -> None:
    content = {
        "pid": os.getpid(),
        "messaging": str(node.messaging),
        "monitor": str(node.monitor),
        "recovery": node.recovery,
    }
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
    temporary.replace(file)


def ready_line(node: Node) -> str:
    """Who serves where, and what recovery found."""
    s = "s" if node.options.tls_cert else ""
    return (
        f"sterna broker '{node.settings.name}' serves sterna{s}://{node.messaging} (monitor http{s}://{node.monitor}); "
        f"{_recovered(node.recovery)}"
    )


def _recovered(recovery: dict[str, Any]) -> str:
    duration = f"in {recovery.get('duration_ms', 0)} ms"
    if not recovery.get("records"):
        text = f"empty store {duration}"
    else:
        text = (
            f"recovered {recovery.get('messages', 0)} messages from {recovery['records']} records "
            f"in {recovery.get('segments', 0)} segments {duration}"
        )
    if recovery.get("torn_bytes"):
        text += f", cut a torn tail of {recovery['torn_bytes']} bytes"
    if recovery.get("manifest_computed"):
        text += ", computed the list of segments from the segments"
    if recovery.get("dropped_records"):
        text += f", dropped {recovery['dropped_records']} damaged records"
    unknown = [dropped for dropped in recovery.get("dropped", []) if dropped["records"] is None]
    for dropped in unknown[:STRETCHES_TOLD]:
        begin, end = dropped["position"], dropped["position"] + dropped["bytes"]
        text += f", dropped unknown how many records between positions {begin} and {end} of {dropped['file']}"
    if len(unknown) > STRETCHES_TOLD:
        text += f" and in {len(unknown) - STRETCHES_TOLD} more places"
    if renamed := recovery.get("renamed"):
        messages, names = sum(one["messages"] for one in renamed), [one["name"] for one in renamed[:STRETCHES_TOLD]]
        text += f", kept {messages} messages whose queues' names are lost in {', '.join(names)}"
        text += f" and {len(renamed) - len(names)} more" if len(renamed) > len(names) else ""
    return text


def _failed(status: int, what: str, text: str) -> int:
    print(f"sterna broker: {what}:\n{text}", file=sys.stderr, flush=True)
    return status
