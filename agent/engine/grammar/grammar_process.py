"""The process that runs llguidance: clients' grammars may overflow its stack, or never end.

The program takes a vocabulary and forks a *worker* for each grammar. A worker compiles one grammar
and computes the masks of all sequences under it, within limits of stack, memory and CPU time. A
worker that exceeds them ends, and nothing else does.

Standard input is a socket. It brings the vocabulary, and then the socket of each worker to fork. A
worker ends when its socket is closed, even in the middle of a computation.

A message to a worker and its answer begin with a letter, which is their type:

| to a worker | answer |
| --- | --- |
| `COMPILE`, the grammar | `COMPILED`, a `Compiled`, and then `MASK` of the first token |
| `VALIDATE`, the grammar | `COMPILED`, nothing |
| `FOLLOW`, a `Course` | `MASK`, as returned by `LLMatcher.compute_bitmask` |

Instead of an answer, `ERROR` says what is wrong, and `PANIC` that llguidance failed. Before an
answer `TOKENIZE` asks for the tokens of a text, which the engine's tokeniser knows.
"""

import gc
import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, Self

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

COMPILE, VALIDATE, FOLLOW = b"C", b"V", b"F"
COMPILED, MASK, ERROR, PANIC, TOKENIZE = b"c", b"m", b"e", b"p", b"t"

LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=25_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""Limits in llguidance's own units: about 20 ms to compile, and 15 ms per token.

Hostile grammars take far longer within these limits, so a worker's CPU time is limited too.
"""

MAX_STACK = 64 * 2**20
"""Bytes of a worker's stack: four times what the deepest constraint takes."""

MAX_MEMORY = 2 * MAX_STACK + 192 * 2**20
"""Maximum bytes that a worker may reserve, including two stacks."""

TOKEN_SECONDS = 0.15
"""Maximum CPU seconds for one token's mask, because running streams wait for it."""

SECONDS_EACH = 0.015
"""Maximum average CPU seconds for a token's mask, because running streams wait for it."""

MAX_DEBT = 0.5
"""Maximum seconds by which a sequence may exceed the average."""

UNHURRIED = 0.05
"""Seconds of compiling a grammar after which its thread's priority is lowered."""

NICENESS = 5
"""The niceness of the compiler's thread from then on."""

NUM_TRIED = 3
"""Tokens that are tried before a grammar is accepted."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Each token's bytes, the tokens that end an answer, and the seconds to compile a grammar."""

    tokens: Sequence[bytes]
    ends: Sequence[int]
    seconds: float

    def send(self, connection: Connection) -> None:
        """Send the vocabulary; block until the program reads it."""
        lengths = array("I", map(len, self.tokens))
        connection.send_bytes(json.dumps([self.seconds, *self.ends]).encode())
        connection.send_bytes(lengths.tobytes())
        connection.send_bytes(b"".join(self.tokens))

    @classmethod
    def receive(cls, connection: Connection) -> Self:
        """Receive a vocabulary. Raises `EOFError` if the engine ends before."""
        seconds, *ends = json.loads(connection.recv_bytes())
        lengths = array("I", connection.recv_bytes())
        text, start, tokens = connection.recv_bytes(), 0, []
        for length in lengths:
            tokens.append(text[start : start + length])
            start += length
        return cls(tokens, ends, seconds)


_NUMBER = array("Q").itemsize


@dataclass(frozen=True, slots=True)
class Course:
    """Continues the sequence `id` by `tokens`. A new sequence begins at the state of `base`.

    `num_before` tokens of the answer came before `tokens`. The sequences `dropped` have ended.
    """

    id: int
    base: int
    tokens: Sequence[int]
    num_before: int = 0
    dropped: Sequence[int] = ()

    def encode(self) -> bytes:
        """Return the message."""
        numbers = (self.id, self.base, self.num_before, len(self.dropped))
        return FOLLOW + array("Q", (*numbers, *self.dropped, *self.tokens)).tobytes()

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Return the course in `message`, an encoded message without its letter."""
        id, base, num_before, num_dropped, *numbers = array("Q", message)
        return cls(id, base, numbers[num_dropped:], num_before, numbers[:num_dropped])


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiler's result: warnings about parts left out, and the worker's size in bytes."""

    warnings: Sequence[str]
    num_bytes: int

    def encode(self) -> bytes:
        """Return the message."""
        return COMPILED + json.dumps([self.num_bytes, *self.warnings]).encode()

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Return the result in `message`, an encoded message without its letter."""
        num_bytes, *warnings = json.loads(message)
        return cls(warnings, num_bytes)


class _Refused(Exception):
    """A grammar or a token is invalid; the message says why."""


class _Tokens:
    """The vocabulary in llguidance's form. A worker asks the engine to tokenize texts."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = list(vocabulary.tokens)
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self.special_token_ids: list[int] = []
        self.is_tokenizer_wrapper = True
        self.worker: _Worker | None = None

    def __call__(self, text: str) -> list[int]:
        assert self.worker is not None
        return self.worker.tokenized(text)


class _Worker:
    """Answers the messages of one socket."""

    def __init__(self, connection: Connection, tokenizer: LLTokenizer, seconds: float) -> None:
        self._connection = connection
        self._tokenizer = tokenizer
        self._seconds = seconds
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._matchers: dict[int, LLMatcher] = {}
        self._debts: dict[int, float] = {}
        """Seconds by which each sequence exceeds the average; sequences below the average are
        absent.
        """

    def run(self) -> NoReturn:
        """Work on separate threads, so that the end of the socket is noticed at once."""
        threading.stack_size(MAX_STACK)
        compiling = threading.Thread(target=self._compile, daemon=True)
        compiling.start()
        with suppress(EOFError, OSError):
            self._messages.put(self._connection.recv_bytes())
            if not self._connection.poll(UNHURRIED):
                _yield(compiling)
            while True:
                self._messages.put(self._connection.recv_bytes())
        os._exit(0)

    def tokenized(self, text: str) -> list[int]:
        """Return the tokens of `text`."""
        self._connection.send_bytes(TOKENIZE + text.encode())
        return array("I", self._messages.get()).tolist()

    def _compile(self) -> None:
        """Compile a grammar. All messages share one allowance of CPU time for compilation."""
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        while not self._matchers:
            self._answer(self._messages.get())
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while True:
            message = self._messages.get()
            most = SECONDS_EACH * len(message) / _NUMBER  # of the tokens after which it goes on
            signal.setitimer(signal.ITIMER_PROF, max(TOKEN_SECONDS, most))
            self._answer(message)
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _answer(self, message: bytes) -> None:
        kind, content = message[:1], message[1:]
        try:
            if kind == FOLLOW:
                answers = [MASK + self._mask_after(Course.decode(content))]
            elif kind == COMPILE:
                answers = self._compiled(content.decode())
            else:
                answers = [_validated(content.decode())]
        except _Refused as error:
            answers = [ERROR + str(error).encode()]
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # it derives from `BaseException`
                raise
            answers = [PANIC + str(error).encode()]
        for each in answers:
            self._connection.send_bytes(each)

    def _compiled(self, grammar: str) -> list[bytes]:
        before = _resident()
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
        _check(matcher)
        mask = _mask(matcher)
        self._try(matcher.deep_copy(), mask)
        self._matchers[0] = matcher
        compiled = Compiled(matcher.get_grammar_warnings(), max(0, _resident() - before))
        return [compiled.encode(), MASK + mask]

    def _try(self, matcher: LLMatcher, mask: bytes) -> None:
        """Try some tokens: some grammars compile, but cost too much from the second token on."""
        for _ in range(NUM_TRIED):
            matcher.consume_token(_first(mask))
            _check(matcher)
            if matcher.is_stopped():
                break
            mask = _mask(matcher)

    def _mask_after(self, course: Course) -> bytes:
        for id in course.dropped:
            self._matchers.pop(id, None)
            self._debts.pop(id, None)
        start = time.thread_time()
        matcher = self._matchers.get(course.id)
        if matcher is None:
            matcher = self._matchers[course.id] = self._matchers[course.base].deep_copy()
        if len(course.tokens) == 1:
            matcher.consume_token(course.tokens[0])
        elif (num_taken := matcher.try_consume_tokens(list(course.tokens))) < len(course.tokens):
            _check(matcher)
            number = course.num_before + num_taken + 1
            raise _Refused(f"the grammar does not allow token {number} of the answer")
        _check(matcher)
        mask = _mask(matcher)
        spent = time.thread_time() - start - SECONDS_EACH * len(course.tokens)
        debt = max(0.0, self._debts.get(course.id, 0.0) + spent)
        self._debts[course.id] = debt
        if debt > MAX_DEBT:
            raise _Refused(f"its tokens take more than {SECONDS_EACH:g} s of computing each")
        return mask


def _yield(thread: threading.Thread) -> None:
    """Lower the priority of `thread`, if it still runs."""
    if sys.platform == "linux" and thread.native_id:  # elsewhere it would be the whole process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, NICENESS)


def _validated(grammar: str) -> bytes:
    if complaint := LLMatcher.validate_grammar(grammar, limits=LIMITS):
        raise _Refused(complaint)
    return COMPILED


def _mask(matcher: LLMatcher) -> bytes:
    bits = matcher.compute_bitmask()
    _check(matcher)
    return bits


def _first(mask: bytes) -> int:
    """Return the lowest token of `mask`."""
    rest = mask.lstrip(b"\0")
    if not rest:
        raise _Refused("no token is allowed next")
    return 8 * (len(mask) - len(rest)) + (rest[0] & -rest[0]).bit_length() - 1


def _check(matcher: LLMatcher) -> None:
    """Raise `_Refused` if `matcher` cannot continue."""
    if not matcher.is_error():
        return
    reason = matcher.get_error().removesuffix("<non-verbose/>").strip()
    if reason.startswith("NoExtension"):
        reason = "no text matches it"
    raise _Refused(reason)


def main() -> None:
    """Fork workers until standard input ends."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the engine ends this process
    orders = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    os.close(sys.stdin.fileno())  # workers must not hold it open
    with Connection(os.dup(orders.fileno())) as connection:
        try:
            vocabulary = Vocabulary.receive(connection)
        except EOFError:
            return
    tokens = _Tokens(vocabulary)
    slices = LLTokenizer.json_slices()
    ends = list(vocabulary.ends)
    tokenizer = LLTokenizer(tokens, eos_token=ends, slices=slices)  # type: ignore[arg-type]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    gc.freeze()  # what workers share is not written to
    while True:
        _, files, _, _ = socket.recv_fds(orders, 1, 1)
        if not files:
            return
        try:
            pid = os.fork()
        except OSError:  # the host has no room for a process: the worker's socket closes
            pid = -1
        if pid == 0:
            orders.close()
            _bound()
            worker = _Worker(Connection(files[0]), tokenizer, vocabulary.seconds)
            tokens.worker = worker
            worker.run()
        os.close(files[0])


def _resident() -> int:
    """Return the bytes of memory that this process uses."""
    if sys.platform != "linux":
        return 0
    _, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(resident) * resource.getpagesize()


def _bound() -> None:
    """Limit the memory of this process, and make it the first to end if the host is out of memory.

    Standard error is discarded: messages of libraries contain clients' text, which does not belong
    into a log.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        size, *_ = Path("/proc/self/statm").read_text().split()
        most = int(size) * resource.getpagesize() + MAX_MEMORY
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
