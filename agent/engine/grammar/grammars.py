"""Compiles grammars for one vocabulary, and caches the last few: clients repeat themselves.

llguidance runs in workers of a process of its own (`grammar_process`), so no grammar can end or
stall the engine. What a grammar may cost is bounded there; its size, and how many are cached, here.
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
"""Compiled grammars that are cached, a worker for each; the least recently used is evicted."""

MAX_CACHED_BYTES = 256 * 2**20
"""Bytes of memory of the workers that are cached."""

MAX_TEXT = 512 * 1024
"""Characters of a grammar, all its parts included."""

SECONDS = 2.0
"""Seconds of computing for a grammar, if the agent's settings say nothing else."""

PATIENCE = 10.0
"""Seconds to wait for a worker besides: others may have the cores. Then it counts as stuck."""

MAX_ANSWER = 2**24
"""Bytes of a worker's message."""

Ended = Future[None]
"""Done once nobody waits for what is compiled."""


class TooCostlyError(BrokenError):
    """A worker went beyond its bounds."""


class _Worker:
    """A worker's socket. Any thread may use it, one after the other."""

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
        """See `Worker`. Between answers there is nothing to read but the end."""
        if self._lock.acquire(blocking=False):
            try:
                self._is_broken |= self._connection.poll()
            finally:
                self._lock.release()
        return self._is_broken

    def begin(self) -> int:
        """See `Worker`."""
        return next(self._ids)

    def end(self, id: int) -> None:
        """See `Worker`. Finalizers call it, on any thread."""
        self._dropped.append(id)

    def follow(self, id: int, base: int, tokens: Sequence[int], num_before: int = 0) -> bytes:
        """See `Worker`."""
        with self._lock:
            dropped = self._dropped[:]
            del self._dropped[: len(dropped)]
            return self._ask(Course(id, base, tokens, num_before, dropped).encode(), MASK)

    def compile(self, grammar: str) -> tuple[Compiled, bytes]:
        """The compiler's answer and the bits of the first token. Raises `ConstraintError`."""
        with self._lock:
            compiled = self._ask(COMPILE + grammar.encode(errors="replace"), COMPILED)
            first = self._received(MASK)
            self._bound = f"a token of it takes more than {TOKEN_SECONDS:g} s of computing"
            return Compiled.decode(compiled), first

    def complaint(self, grammar: str) -> str | None:
        """The fault of `grammar` itself; `None` if it has none, or if it costs too much."""
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
        """Raises `ConstraintError`."""
        try:
            self._connection.send_bytes(message)
        except OSError as error:
            raise self._too_costly() from error
        return self._received(answer)

    def _received(self, expected: bytes) -> bytes:
        """The next answer. Raises `ConstraintError`."""
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
        """The socket of a new worker. Raises `OSError` if the process is gone."""
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
    """Whether a worker that was told nothing yet is gone, perhaps for want of memory."""
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
    """Safe from any thread. `seconds`: most seconds of computing for one grammar."""

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
        """`grammar` as llguidance takes it. Raises `ConstraintError` if it cannot be served.

        Stops once the request has `ended`, whose constraint it is.
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
        """Says what is wrong with grammars themselves, all of them within the bounds of one."""
        with self._working(ended) as worker:
            try:
                yield worker.complaint
            finally:
                worker.stop()

    @contextmanager
    def _working(self, ended: Ended | None) -> Iterator[_Worker]:
        """A worker, which is stopped if anything fails, or if the request ends meanwhile."""
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
            raise TooCostlyError("nobody waits for it any more")

    def _socket(self) -> socket.socket:
        """The socket of a new worker. Starts the process again if it is gone."""
        with self._lock:
            try:
                return self._process.worker()
            except OSError:
                self._process = _Process(self._vocabulary)
                return self._process.worker()
