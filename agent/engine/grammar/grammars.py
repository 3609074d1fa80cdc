"""Compiles grammars for one vocabulary, and caches the last few: clients repeat themselves.

llguidance runs in workers of a separate process (`grammar_process`), so no grammar can end or
stall the engine. That process limits the cost of a grammar. This module limits the size of a
grammar, and the number of cached grammars.
"""

import os
import re
import socket
import struct
import sys
import threading
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from subprocess import DEVNULL, Popen

from ..loaded_model import GrammarTokens
from .constraint import BrokenError, Constraint, ConstraintError, Numbers
from .grammar_process import (
    COMPILE,
    COMPILED,
    ERROR,
    MASK,
    TOKEN_SECONDS,
    TOKENIZE,
    VALIDATE,
    Compiled,
    Course,
    Vocabulary,
)

COMMAND = (sys.executable, "-P", "-m", "arriero.agent.engine.grammar.grammar_process")
"""`-P`: nothing is imported from the working directory."""

MAX_CACHED = 32
"""Maximum cached grammars, with a worker each; the least recently used is evicted."""

MAX_CACHED_BYTES = 256 * 2**20
"""Maximum bytes of memory of the cached workers."""

MAX_TEXT = 512 * 1024
"""Maximum characters of a grammar, including all its parts."""

SECONDS = 2.0
"""Default CPU seconds for a grammar."""

PATIENCE = 10.0
"""Additional seconds to wait for a worker, since other programs may use the cores.

After that time the worker counts as stuck.
"""

MAX_ANSWER = 2**24
"""Maximum bytes of a worker's message."""

Ended = Future[None]
"""Done once the result of a compilation is no longer needed."""


class TooCostlyError(BrokenError):
    """A worker exceeded its limits for a grammar."""


class _Worker:
    """A worker's socket. Threads use it one at a time."""

    def __init__(
        self, mine: socket.socket, tokenize: Callable[[str], Sequence[int]], seconds: float
    ) -> None:
        wait = struct.pack("ll", int(seconds + PATIENCE), 0)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            mine.setsockopt(socket.SOL_SOCKET, option, wait)
        self._connection = Connection(mine.detach())
        self._tokenize = tokenize
        self._bound = f"compiling it takes more than {seconds:g} s of computing"
        self._ids = count(1)
        self._dropped: list[int] = []
        self._lock = threading.Lock()
        self._is_broken = False

    @property
    def is_broken(self) -> bool:
        """Return whether the worker's process has failed.

        Between answers the socket can only signal its end.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._is_broken |= self._connection.poll()
            finally:
                self._lock.release()
        return self._is_broken

    def begin(self) -> int:
        """Return the number of a new sequence."""
        return next(self._ids)

    def end(self, id: int) -> None:
        """Forget a sequence, at some later time.

        Finalizers call this, on any thread.
        """
        self._dropped.append(id)

    def follow(self, id: int, base: int, tokens: Sequence[int], num_before: int = 0) -> bytes:
        """Return the bits of the tokens that may come after `tokens`. Raises `ConstraintError`."""
        with self._lock:
            dropped = self._dropped[:]
            del self._dropped[: len(dropped)]
            return self._ask(Course(id, base, tokens, num_before, dropped).encode(), MASK)

    def compile(self, grammar: str) -> tuple[Compiled, bytes]:
        """Return the compiler's result and the bits of the first token.

        Raises `ConstraintError`.
        """
        with self._lock:
            compiled = self._ask(COMPILE + grammar.encode(errors="replace"), COMPILED)
            first = self._received(MASK)
            self._bound = f"a token of it takes more than {TOKEN_SECONDS:g} s of computing"
            return Compiled.decode(compiled), first

    def complaint(self, grammar: str) -> str | None:
        """Return the fault of `grammar` alone; `None` if it has no fault, or costs too much to
        check.
        """
        try:
            with self._lock:
                self._ask(VALIDATE + grammar.encode(errors="replace"), COMPILED)
        except TooCostlyError:
            return None
        except ConstraintError as error:
            return str(error)
        return None

    def stop(self) -> None:
        """End the worker. A thread that waits for its answer gets `TooCostlyError`."""
        self._is_broken = True
        same = socket.socket(fileno=os.dup(self._connection.fileno()))
        with suppress(OSError), same:
            same.shutdown(socket.SHUT_RDWR)

    def _ask(self, message: bytes, answer: bytes) -> bytes:
        """Send a message and return the answer. Raises `ConstraintError`."""
        try:
            self._connection.send_bytes(message)
        except OSError as error:
            raise self._too_costly() from error
        return self._received(answer)

    def _received(self, expected: bytes) -> bytes:
        """Return the next answer. Raises `ConstraintError`."""
        message = b""
        try:
            while (message := self._connection.recv_bytes(MAX_ANSWER)).startswith(TOKENIZE):
                tokens = self._tokenize(message.removeprefix(TOKENIZE).decode())
                self._connection.send_bytes(array("I", tokens).tobytes())
        except (EOFError, OSError) as error:
            raise self._too_costly() from error
        finally:
            if message[:1] not in (expected, ERROR):
                self.stop()  # there is no telling what its next answer would be
        if message.startswith(ERROR):
            raise ConstraintError(message[1:].decode())
        if not message.startswith(expected):
            raise BrokenError(f"llguidance failed: {message[1:].decode(errors='replace')}")
        return message[1:]

    def _too_costly(self) -> TooCostlyError:
        self.stop()
        return TooCostlyError(
            f"{self._bound}, or too much memory, or it nests too deeply; simplify it"
        )


class _Process:
    """The process that forks workers, one of them in advance; it ends with this object."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._socket, its = socket.socketpair()
        with its:
            self._process = Popen(
                COMMAND, stdin=its.fileno(), stdout=DEVNULL, start_new_session=True
            )
        self._spares: list[socket.socket] = []
        weakref.finalize(self, _end, self._process, self._socket, self._spares)
        connection = Connection(os.dup(self._socket.fileno()))
        self._sending = threading.Thread(
            target=_send, args=(vocabulary, connection), name="vocabulary", daemon=True
        )
        self._sending.start()

    def worker(self) -> socket.socket:
        """Return the socket of a new worker. Raises `OSError` if the process is gone."""
        self._sending.join()
        self._spares.append(self._forked())
        while len(self._spares) > 1:
            spare = self._spares.pop(0)
            if not _has_ended(spare):
                return spare
            spare.close()
        self._spares.append(self._forked())
        return self._spares.pop(0)

    def _forked(self) -> socket.socket:
        mine, its = socket.socketpair()
        with its:
            try:
                socket.send_fds(self._socket, (b"w",), (its.fileno(),))
            except OSError:
                mine.close()
                raise
        return mine


def _has_ended(worker: socket.socket) -> bool:
    """Return whether a worker without orders has ended, perhaps for lack of memory."""
    try:
        return not worker.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _send(vocabulary: Vocabulary, connection: Connection) -> None:
    with connection, suppress(OSError):
        vocabulary.send(connection)


def _end(process: Popen[bytes], orders: socket.socket, spares: list[socket.socket]) -> None:
    process.kill()
    process.wait()
    for each in (orders, *spares):
        each.close()


_SCHEMA = re.compile(r'"json_schema":\s*\{')


class Grammars:
    """Compiles grammars. Thread-safe. `seconds` is the maximum CPU time for one grammar."""

    def __init__(
        self,
        tokens: GrammarTokens,
        *,
        max_cached: int = MAX_CACHED,
        max_bytes: int = MAX_CACHED_BYTES,
        seconds: float = SECONDS,
    ) -> None:
        self._tokens = tokens
        self._vocabulary = Vocabulary(tokens.pieces, tokens.ends, seconds)
        self._max_cached = max_cached
        self._max_bytes = max_bytes
        self._cached: OrderedDict[str, Constraint] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._numbers = Numbers(tokens.pieces)
        self._process = _Process(self._vocabulary)

    def __len__(self) -> int:
        return len(self._cached)

    def compile(self, grammar: str, ended: Ended | None = None) -> Constraint:
        """Compile `grammar`, in llguidance's form. Raises `ConstraintError` if it cannot be served.

        Stops once the request of the constraint has `ended`.
        """
        if len(grammar) > MAX_TEXT:
            raise ConstraintError(
                f"it is {len(grammar)} characters long; at most {MAX_TEXT} are allowed"
            )
        with self._lock:
            if (cached := self._cached.get(grammar)) is not None and not cached.is_broken:
                self._cached.move_to_end(grammar)
                return cached
        with self._working(ended) as worker:
            compiled, first = worker.compile(grammar)
            pieces, ends = self._tokens.pieces, self._tokens.ends
            constraint = Constraint(
                worker,
                first,
                len(pieces),
                ends,
                warnings=compiled.warnings,
                numbers=self._numbers if _SCHEMA.search(grammar) else None,
            )
        with self._lock:
            self._cached[grammar] = constraint
            self._bytes[grammar] = compiled.num_bytes
            while self._is_full:
                oldest, _ = self._cached.popitem(last=False)
                del self._bytes[oldest]
        return constraint

    @property
    def _is_full(self) -> bool:
        return len(self._cached) > self._max_cached or sum(self._bytes.values()) > self._max_bytes

    @contextmanager
    def judging(self, ended: Ended | None = None) -> Iterator[Callable[[str], str | None]]:
        """Yield a function that returns a grammar's fault. All calls share the limits of one
        grammar.
        """
        with self._working(ended) as worker:
            try:
                yield worker.complaint
            finally:
                worker.stop()

    @contextmanager
    def _working(self, ended: Ended | None) -> Iterator[_Worker]:
        """Yield a worker, which is stopped if an error is raised or the request ends."""
        worker = _Worker(self._socket(), self._tokens.tokenize, self._vocabulary.seconds)
        compiling = [worker]

        def stop(_: Ended) -> None:
            for each in compiling:
                each.stop()

        if ended is not None:
            ended.add_done_callback(stop)
        try:
            yield worker
        except BaseException:
            worker.stop()
            raise
        compiling.clear()
        if ended is not None and ended.done():
            raise TooCostlyError("its request has ended")

    def _socket(self) -> socket.socket:
        """Return the socket of a new worker; start the process again if it is gone."""
        with self._lock:
            try:
                return self._process.worker()
            except OSError:
                self._process = _Process(self._vocabulary)
                return self._process.worker()
