"""A persistent subprocess for work that may crash or hang: requests and answers as framed JSON over two pipes.

The parent has a `Worker`, the child calls `serve`. Whatever is large travels as a file, its path in the request.
The pipes are the worker's own, so nothing that a library prints can be taken for an answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import queue
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from bridge.errors import WorkerFailure

_LENGTH = struct.Struct("<Q")
_TAIL_BYTES = 4000
_GLANCE_SECONDS = 1.0


class Worker:
    """One child process that runs `python -m module`, started at the first call and again after a failure.

    Calls from several threads wait for one another. A fork of the parent starts a child of its own at its first call.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self._child: _Child | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=functools.partial(_forget, weakref.ref(self)))

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return self._child.process.pid if self._child else None

    def call(
        self, request: Mapping[str, Any], timeout: float, meanwhile: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """The child's answer to one request, both JSON objects. `timeout` is in seconds and counts a start too.

        meanwhile: what this process does while the child works on the request, for as long as it takes.
        Raises WorkerFailure; after "died" and "hung" the next call starts a new child.
        """
        with self._lock:
            try:
                answer = self._exchange(json.dumps(request).encode(), time.monotonic() + timeout, meanwhile)
            except TimeoutError:
                self._stop()
                raise WorkerFailure("hung", f"no answer in {timeout:g} s") from None
            except BaseException:  # an interrupt too: what is left in the pipes belongs to this call
                self._stop()
                raise
        if "error" in answer:
            raise WorkerFailure("error", answer["error"])
        return answer["value"]

    def start(self) -> None:
        """Start the child ahead of a call, so that it loads while the parent does something else.

        What keeps it from starting is told by the call.
        """
        if self._child is not None:
            return  # without waiting for a call of another thread
        with self._lock, contextlib.suppress(OSError):
            self._child = self._child or _Child(self.module)

    def close(self) -> None:
        """End the child, if there is one. A later call starts another."""
        with self._lock:
            self._stop()

    def _exchange(self, request: bytes, deadline: float, meanwhile: Callable[[], None]) -> dict[str, Any]:
        if self._child is not None and self._child.process.poll() is not None:
            self._stop()  # it died between two calls, which is no fault of this request
        try:
            if self._child is None:
                self._child = _Child(self.module)
        except OSError as failure:
            raise WorkerFailure("died", f"{sys.executable} -m {self.module} cannot be started: {failure}") from failure
        try:
            self._child.send(_LENGTH.pack(len(request)) + request, deadline)
            started = time.monotonic()
            meanwhile()
            deadline += time.monotonic() - started
            (length,) = _LENGTH.unpack(self._child.receive(_LENGTH.size, deadline))
            return json.loads(self._child.receive(length, deadline))
        except (EOFError, BrokenPipeError):
            raise WorkerFailure("died", self._child.last_words()) from None

    def _stop(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


@functools.cache
def shared(module: str) -> Worker:
    """The one worker of this process for `module`."""
    return Worker(module)


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The child's side: answer requests until the parent is gone. Call it from the served module's `__main__`.

    An exception of `handle` is answered with its type and message, its traceback goes to stderr.
    """
    requests_fd, answers_fd = (int(argument) for argument in sys.argv[1:3])
    for fd in (requests_fd, answers_fd):
        os.set_inheritable(fd, False)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests_fd, requests), daemon=True).start()
    while True:
        try:
            answer = json.dumps({"value": handle(json.loads(requests.get()))})
        except Exception as failure:
            traceback.print_exc()
            answer = json.dumps({"error": f"{type(failure).__name__}: {failure}"})
        data = answer.encode()
        _write(answers_fd, _LENGTH.pack(len(data)) + data)


def block_import(package: str) -> None:
    """Make `import package` fail in this process: tvm_ffi starts three times as fast where there is no torch."""
    sys.modules[package] = None  # type: ignore[assignment]


def _read_requests(fd: int, requests: queue.SimpleQueue[bytes]) -> None:
    """Runs in a thread of its own, so that a child that hangs in its work still ends when its parent is gone."""
    with os.fdopen(fd, "rb") as stream:
        while header := stream.read(_LENGTH.size):
            requests.put(stream.read(_LENGTH.unpack(header)[0]))
    os._exit(0)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _import_path() -> str:
    """The parent's own import path, as PYTHONPATH: the child finds the same packages, however the parent found them."""
    path = [os.path.abspath(entry) for entry in sys.path]
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(path if root in path else [root, *path])


def _forget(worker: weakref.ref[Worker]) -> None:
    """In a fork of the parent: the child is the parent's, and the lock may be held by a thread that is not here."""
    forked = worker()
    if forked is None:
        return
    forked._lock = threading.Lock()
    if forked._child is not None:
        forked._child.disown()
        forked._child = None


class _Child:
    """A running process with the parent's ends of its pipes, and a file that holds what it printed."""

    def __init__(self, module: str) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        fcntl.fcntl(self._printed, fcntl.F_SETFL, os.O_APPEND)
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._pipes = (self._requests, self._answers)
        os.set_blocking(self._requests, False)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(requests), str(answers)],
                env={**os.environ, "PYTHONPATH": _import_path()},
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(requests, answers),
                start_new_session=True,  # Ctrl-C is for the parent; and a compiler it started ends with it
            )
        except BaseException:
            _close(self._pipes, self._printed)
            raise
        finally:
            _close((requests, answers))
        self._end_at_exit = weakref.finalize(self, _end, self.process, self._pipes, self._printed)

    def send(self, data: bytes, deadline: float) -> None:
        """Write everything, or raise TimeoutError or BrokenPipeError."""
        self._printed.truncate(0)
        view = memoryview(data)
        while view:
            self._wait(self._requests, select.POLLOUT, deadline)
            view = view[os.write(self._requests, view) :]

    def receive(self, size: int, deadline: float) -> bytes:
        """Exactly `size` bytes, or TimeoutError or EOFError."""
        data = bytearray()
        while len(data) < size:
            self._wait(self._answers, select.POLLIN, deadline)
            part = os.read(self._answers, size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(1000 * min(left, _GLANCE_SECONDS)):
                return
            if self.process.poll() is not None:  # a fork of the parent may hold the pipe open
                raise EOFError
        raise TimeoutError

    def last_words(self) -> str:
        """How the process ended, and the end of what it printed."""
        try:
            code = self.process.wait(_GLANCE_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL_BYTES))
        printed = self._printed.read().decode(errors="replace").strip()
        return f"{how}\n{printed}" if printed else how

    def end(self) -> None:
        """Kill the process and what it started, and let go of the pipes."""
        self._end_at_exit()

    def disown(self) -> None:
        """Let go of the pipes and leave the process alone."""
        self._end_at_exit.detach()
        self.process.returncode = 0
        _close(self._pipes, self._printed)


def _end(process: subprocess.Popen[bytes], pipes: Iterable[int], printed: IO[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    _close(pipes, printed)


def _close(pipes: Iterable[int], *files: IO[bytes]) -> None:
    for fd in pipes:
        os.close(fd)
    for file in files:
        file.close()
