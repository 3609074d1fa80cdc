"""The process in which llguidance runs: its messages, and how it ends."""

import socket
from array import array
from collections.abc import Iterator
from multiprocessing.connection import Connection
from subprocess import DEVNULL, Popen

import pytest
from llguidance import LLMatcher

from arriero.agent.engine.grammar.grammar_process import (
    COMPILE,
    COMPILED,
    ERROR,
    MASK,
    TOKENIZE,
    VALIDATE,
    Compiled,
    Course,
    Vocabulary,
)
from arriero.agent.engine.grammar.grammars import COMMAND

END = 256
VOCABULARY = Vocabulary([*(bytes([each]) for each in range(256)), b"\xff<end>"], [END], 5.0)


@pytest.fixture(scope="module")
def process() -> Iterator[socket.socket]:
    ours, its = socket.socketpair()
    with ours:
        with its:
            process = Popen(COMMAND, stdin=its.fileno(), stdout=DEVNULL)
        with Connection(ours.detach()) as connection:
            VOCABULARY.send(connection)
            with socket.socket(fileno=connection.fileno()) as orders:
                yield orders
                orders.shutdown(socket.SHUT_RDWR)
                orders.detach()
        assert process.wait(10.0) == 0


@pytest.fixture
def worker(process: socket.socket) -> Iterator[Connection]:
    ours, its = socket.socketpair()
    with its:
        socket.send_fds(process, (b"w",), (its.fileno(),))
    with Connection(ours.detach()) as connection:
        yield connection


def answer(worker: Connection, message: bytes) -> bytes:
    """Its answer. The engine's tokeniser takes each byte for a token."""
    worker.send_bytes(message)
    while (answer := worker.recv_bytes())[:1] == TOKENIZE:
        worker.send_bytes(array("I", [*answer[1:]]).tobytes())
    return answer


def allowed(answer: bytes) -> set[int]:
    assert answer[:1] == MASK
    bits = int.from_bytes(answer[1:], "little")
    return {token for token in range(len(VOCABULARY.tokens)) if bits >> token & 1}


def test_a_vocabulary_arrives_as_it_was_sent() -> None:
    ours, its = (Connection(each.detach()) for each in socket.socketpair())
    with ours, its:
        VOCABULARY.send(ours)
        assert Vocabulary.receive(its) == VOCABULARY


@pytest.mark.parametrize(
    "course",
    [Course(1, 0, [5], 0, []), Course(2**40, 3, [7, 8], 512, [4, 6]), Course(1, 0, [], 0, [9])],
)
def test_a_course_arrives_as_it_was_sent(course: Course) -> None:
    assert Course.decode(course.encode()[1:]) == course


def test_the_masks_of_two_sequences(worker: Connection) -> None:
    grammar = LLMatcher.grammar_from_regex("(ab|cd)")
    compiled = answer(worker, COMPILE + grammar.encode())
    assert compiled[:1] == COMPILED
    assert Compiled.decode(compiled[1:]).warnings == []
    assert allowed(worker.recv_bytes()) == {*b"ac"}
    assert allowed(answer(worker, Course(1, 0, b"a").encode())) == {*b"b"}
    assert allowed(answer(worker, Course(2, 0, b"c").encode())) == {*b"d"}
    assert allowed(answer(worker, Course(1, 0, b"b").encode())) == {END}
    assert allowed(answer(worker, Course(3, 0, b"cd", 0, [1, 2]).encode())) == {END}
    wrong = answer(worker, Course(4, 0, b"cx", 7).encode())
    assert wrong == ERROR + b"the grammar does not allow token 9 of the answer"


def test_what_is_wrong_with_a_grammar(worker: Connection) -> None:
    assert answer(worker, VALIDATE + LLMatcher.grammar_from_regex("a").encode()) == COMPILED
    for kind in (VALIDATE, COMPILE):
        found = answer(worker, kind + LLMatcher.grammar_from_regex("(a").encode())
        assert found[:1] == ERROR
        assert b"unclosed group" in found


def test_many_tokens_may_take_longer_than_one(worker: Connection) -> None:
    """As when an answer goes on that another agent began."""
    answer(worker, COMPILE + LLMatcher.grammar_from_regex("[a-z]*").encode())
    worker.recv_bytes()
    assert answer(worker, Course(1, 0, b"abc" * 100_000).encode())[:1] == MASK
