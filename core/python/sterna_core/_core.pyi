"""The compiled module, as type checkers see it.

Data frames pass as bytes: one `sterna.v1.ClientBatch` in, one `ServerBatch` out. Everything rare passes as JSON text.
"""

from collections.abc import Sequence
from typing import Literal, final

__version__: str

@final
class CutReader:
    """What a cut and its events are, piece by piece. May be used from any thread, one at a time."""

    def next(self) -> tuple[str, str, int, bytes] | None:
        """The next piece: folder (`state` or `events`), table, number of rows, an Arrow IPC stream; None at the end.

        Reads the disk; releases the GIL. Raises EngineError when a file is damaged or gone.
        """

@final
class Engine:
    """One broker's engine with its log. All methods but `open` and `stop` return at once; use one thread."""

    @staticmethod
    def open(folder: str, settings: str, wall_ms: int, monotonic_ms: int) -> Engine:
        """Opens or creates the store in `folder` and starts the engine's threads. May take long; releases the GIL.

        Raises StoreError, or EngineError for settings that cannot be read.
        """

    def recovery(self) -> str:
        """What the start found, as a JSON object."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` may have something new."""

    def tick(self, wall_ms: int, monotonic_ms: int) -> None:
        """Tells the time. Call it before `handle` and `poll`, and at the deadline that `poll` names."""

    def open_stream(self, stream: int, peer: str, internal: bool = False) -> None:
        """A new call under a number that is never used again. `internal`: the broker's own, without heartbeats."""

    def handle(self, stream: int, batch: bytes) -> None:
        """Takes one batch of frames. What is wrong with it is answered on the stream."""

    def close_stream(self, stream: int) -> None:
        """The call is gone; without a Goodbye before it the client counts as crashed."""

    def poll(self) -> tuple[list[int], list[str], int | None, str | None]:
        """Streams that have output, tickets as JSON, and the monotonic time in ms at which to tick at the latest.

        Last, why nothing will be written any more; None: the store is well.
        """

    def take_output(self, stream: int, max_bytes: int) -> bytes | None:
        """The next batch for a stream, or None: nothing now, `poll` will tell."""

    def is_closing(self, stream: int) -> bool:
        """Whether the call should be ended: nothing more will come out."""

    def ended_for(self, stream: int) -> bytes | None:
        """What the engine ended a stream for, as an Error of the contract, though its last output is not taken yet.

        None: it goes on, is gone, or its client has ended it.
        """

    def answer(self, ticket: int, answer: str) -> None:
        """Answers a ticket: `{"ok": {…}}` or `{"error": {"code": …, "subject": …, "message": …}}`."""

    def configure(self, configuration: str) -> str:
        """Makes what exists as the whole configuration says; returns JSON with `changes` and `refused`."""

    def reconfigure(self, changes: str) -> str:
        """As `configure`, with only what is different from the configuration that was handed over last.

        `queues`, `topics`, `durables`, `stores`, `temporaries`: rows that are new or different; `removed`: rows that
        are configured no more, by kind; `bridges`: all of them, if any is different; `inherited`: whether what dynamic
        destinations get may be different.
        """

    def delete(self, kind: str, name: str, with_messages: bool, client_id: str = "", reason: str = "") -> int:
        """Deletes a "queue", "topic" or "durable"; how many messages went with it. Raises EngineError.

        `reason` is what producers and consumers of a queue or topic are told, as the error of an answer; else that it
        was deleted.
        """

    def serve_elsewhere(self, kind: str, name: str, reason: str) -> None:
        """Serves a "queue" or "topic" to nobody, telling all who use or open it `reason`, an error as JSON.

        What it holds stays. Empty: serves it again.

        Raises EngineError.
        """

    def close_to_producers(self, kind: str, name: str, reason: str) -> None:
        """Refuses what is sent to a "queue" or "topic" with `reason`, an error as JSON; empty: takes it again.

        Raises EngineError.
        """

    def close_subscribers(self, topic: str, reason: str) -> None:
        """Closes the consumers of subscriptions to this topic or pattern, with `reason`, an error as JSON.

        Those of a subscription that still holds messages stay. Raises EngineError.
        """

    def purge(self, kind: str, name: str, client_id: str = "") -> int:
        """Drops what a "queue", a "durable" or all subscriptions to a "topic" hold; how many. Raises EngineError."""

    def list(self, kind: str, pattern: str = "", after: str = "", limit: int = 1000) -> str:
        """JSON rows of "queue", "topic" or "durable", by name, behind the name `after`.

        "subscription": all of topics, those of clients without a name among them, by their number of twenty digits.
        """

    def statistics(self) -> str:
        """What the broker as a whole is and does, as a JSON object."""

    def log_progress(self) -> tuple[int, int, str | None]:
        """Where the log ends, up to where it is durable, and why it will not be any further, or None."""

    def begin_cut(self) -> str:
        """Begins the next cut for audits, unless one is being written or waits to be exported.

        Returns what `cut_progress` does.

        Raises EngineError (STORE_FULL: the disk is full).
        """

    def cut_progress(self) -> str:
        """How far the next cut is, as a JSON object with `progress` (none, making, failed or ready) and what is kept.

        Kept are `kept_bytes`, since `kept_since_ms` (null: nothing), with `kept_gaps` ranges that nothing is told of;
        `half_full` is whether half of what may be kept is, `exported` the last cut that was (null: none).
        A cut that is ready has `number`, `position`, `previous_position`, `epoch`, `time_ms`, `store`, `previous`
        (the SHA-256 of the manifest before it, or null), and `events` and `gaps`, ranges of positions that adjoin.
        """

    def confirm_cut(self, number: int, manifest: bytes) -> int:
        """Notes that a cut was exported under a manifest of this SHA-256; returns where the record is that says so.

        It counts when that is durable; told again it is no error. Raises EngineError for a cut that does not wait.
        """

    def open_cut(self, number: int) -> CutReader:
        """Reads the cut that waits. Raises EngineError when it is another one, or none."""

    def destroyed(self) -> str:
        """Messages that went without being taken since the start, as JSON: by reason and by place."""

    def damaged_places(self) -> int:
        """How many damaged places of the log were found since the start."""

    def connections(self) -> str:
        """Who is connected, as JSON rows."""

    def close_connection(self, connection: int, reason: str) -> bool:
        """Ends a connection as if it had broken; whether there was one."""

    def go_away(self, reason_code: str, addresses: Sequence[str], grace_ms: int) -> None:
        """Tells every client that the broker stops serving in `grace_ms`, and where to go."""

    @staticmethod
    def open_simulated(disk: SimulatedDisk, secret: bytes, settings: str, wall_ms: int, monotonic_ms: int) -> Engine:
        """As `open`, on a simulated disk, for simulations; not in the wheels that are shipped.

        Its jobs run only when `run_job` is called, and `stop` runs those that are left. All that `open` draws by chance
        follows from `secret`, so each start needs another one. Raises StoreError: another engine has the disk, what it
        holds cannot be opened, or its power went.
        """

    def jobs(self) -> Sequence[Literal["writer", "background"]]:
        """The workers of a simulated engine that have a job to do; none, if it has threads."""

    def run_job(self, worker: Literal["writer", "background"]) -> bool:
        """Runs a worker's next job, whole; whether it had one. Makes `fileno` readable: `poll` takes the result."""

    def kill(self) -> None:
        """The process is gone: whatever was not run never is. Follow it with `SimulatedDisk.crash`."""

    def stop(self) -> None:
        """Makes everything durable and stops cleanly. May take long; releases the GIL. Raises StoreError."""

@final
class SimulatedDisk:
    """A folder in memory, for simulations; not in the wheels that are shipped. It outlives the engines on it."""

    def __new__(cls, seed: int) -> SimulatedDisk:
        """Empty; what it loses follows from `seed`."""

    def crash(self, power: bool) -> None:
        """What ran on it is gone, and faults are over; with the power, what was not synced is lost in part.

        Files and locks of before are of no use, also to an engine that is still there.
        """

    def is_down(self) -> bool:
        """Whether the power went at an operation (`crash_in`); `crash` brings it up again."""

    def operations(self) -> int:
        """How many operations have changed something."""

    def set_faults(
        self,
        *,
        crash_in: int | None = None,
        fail_sync_in: int | None = None,
        fail_sync_for: int = 0,
        short_write_one_in: int = 0,
        shortage_one_in: int = 0,
        room_bytes: int | None = None,
    ) -> None:
        """What goes wrong from now on, in place of what was said before.

        The power goes at the `crash_in`th changing operation from now; from the `fail_sync_in`th on syncs fail, for
        `fail_sync_for` operations, or once; one write in so many is short; one open, write or reservation in so many
        lacks descriptors, memory or space; files may grow by `room_bytes` in all. 0 and None: never.
        """

    def files(self) -> list[str]:
        """The names of all files, sorted."""

    def contents(self, name: str) -> bytes | None:
        """A file's bytes as a reader sees them, or None if there is none."""

    def flip(self, name: str, offset: int, mask: int) -> bool:
        """Changes bits of a byte behind everybody's back, for good; whether there was such a byte."""

    def make_unreadable(self, name: str, offset: int) -> None:
        """The block at this offset cannot be read until it is written."""

    def fork(self, seed: int) -> SimulatedDisk:
        """A copy of it as it is now, without faults, that loses by a seed of its own."""

@final
class Selector:
    """A parsed selector."""

    def __new__(cls, text: str, undelivered: bool = False) -> Selector:
        """Raises SelectorError if `text` is no selector."""

    @property
    def text(self) -> str:
        """The text it was made from."""

    def matches(self, fields: dict[str, bool | int | float | str | None]) -> bool:
        """Whether it selects a message with these header fields and properties; whole numbers are longs."""

    def evaluate(
        self, fields: dict[str, bool | int | float | str | None]
    ) -> Literal["true", "false", "unknown", "failed"]:
        """How the condition comes out: what is not "true" selects nothing; "failed" is a division by zero."""

def selector_check(text: str, undelivered: bool = False) -> None:
    """Raises SelectorError if `text` is no selector."""

def cut_tables() -> str:
    """The tables of cuts and events, as a JSON array of objects.

    Each has `folder`, `name`, `columns` (name, type, nullable) and `row_bytes` (of a row, before it is compressed).
    """
