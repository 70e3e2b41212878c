"""One API server for all processes of a parallel run: the process that hands out the tests owns it.

Workers come and go; the one that hands out lives as long as the run. It listens on a socket in a folder of its own, and
starts the server when the first worker asks. Nothing is started for a run without such tests.
"""

import contextlib
import tempfile
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

from tests.support.api_server import ApiServer, Reach, programs

_STOP = "stop"
_ASK = "reach"
_STOP_TIMEOUT_S = 5.0


class Keeper:
    """The owner's side. `address` is for the workers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sterna-tests-")
        self.address = str(Path(self._folder.name) / "socket")
        self._listener = Listener(self.address, family="AF_UNIX", backlog=64)
        self._server: ApiServer | None = None
        self._thread = threading.Thread(target=self._serve, name="api-server-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the server, if it was started."""
        with contextlib.suppress(OSError), Client(self.address, family="AF_UNIX") as connection:
            connection.send(_STOP)
        # Not for ever: whoever has removed the socket's folder has also made that nobody can be told. The thread is a
        # daemon, and the server is ended all the same.
        self._thread.join(_STOP_TIMEOUT_S)
        with contextlib.suppress(FileNotFoundError):
            self._listener.close()
        if self._server is not None:
            self._server.stop()
        self._folder.cleanup()

    def _serve(self) -> None:
        """Answers one worker after the other; the others wait while the server starts."""
        while True:
            with self._listener.accept() as connection, contextlib.suppress(EOFError, BrokenPipeError):
                if connection.recv() == _STOP:
                    return
                connection.send(self._reach())

    def _reach(self) -> Reach | str:
        """How the server is reached, or why it is not there."""
        if self._server is None:
            try:
                self._server = ApiServer(Path(self._folder.name), programs()).__enter__()
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker that asked fails with it
                return f"the shared API server did not start: {error!r}"
        return self._server.reach


def ask(address: str) -> Reach:
    """The worker's side: how the server is reached, which is started if need be.

    Raises:
        AssertionError: it did not start.
    """
    with Client(address, family="AF_UNIX") as connection:
        connection.send(_ASK)
        answer: Reach | str = connection.recv()
    assert not isinstance(answer, str), answer
    return Reach(*answer)
