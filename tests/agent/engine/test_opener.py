"""Sequences that are opened on threads beside the engine's, over a fake engine."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from arriero.agent.engine.opener import NUM_THREADS, Opener
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.prompt_store.blocks import Left, OnDisk, ReadBlocks
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import ContextShift, NewSequence, SequenceId
from arriero.agent.engine.step_loop import Inbox, Interruption, Opened
from arriero.shared.errors import EngineFailed, ModelNotFound
from tests.agent.engine.fake_engine import FakeEngine
from tests.waiting import HANGS


class SlowEngine(FakeEngine):
    """Opens nothing until it may, and the sequence 13 never."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: queue.Queue[SequenceId] = queue.Queue()
        self.may = threading.Semaphore(0)
        self.closed: queue.Queue[SequenceId] = queue.Queue()

    def open(self, sequence: NewSequence) -> None:
        self.begun.put(sequence.id)
        assert self.may.acquire(timeout=HANGS)
        if sequence.id == 12:
            raise ModelNotFound("its adapter is gone")
        if sequence.id == 13:
            raise ZeroDivisionError("no luck")
        super().open(sequence)

    def close(self, sequence_id: SequenceId) -> None:
        super().close(sequence_id)
        self.closed.put(sequence_id)


class Setup:
    def __init__(self) -> None:
        self.engine = SlowEngine()
        self.inbox = Inbox(100)
        self.stops: queue.Queue[bool] = queue.Queue()
        self.interruption = Interruption(self.stops.put)
        self.opener = Opener(self.engine, self.inbox, self.interruption)

    def begin(self, number: int) -> NewSequence:
        """Add a sequence; it is being opened afterwards."""
        self.opener.add(one := new(number))
        assert self.engine.begun.get(timeout=HANGS) == number
        return one


def new(number: int, priority: int = 0) -> NewSequence:
    return NewSequence(
        id=SequenceId(number),
        prompt=Prompt((5,)),
        max_tokens=None,
        sampling=Sampling(seed=0),
        priority=priority,
    )


@contextmanager
def setup() -> Iterator[Setup]:
    one = Setup()
    try:
        yield one
    finally:
        one.engine.may.release(100)
        one.opener.close()


def test_no_other_sequence_waits_for_a_batch() -> None:
    with setup() as one:
        for number in range(NUM_THREADS + 2):
            one.opener.add(new(number, priority=-1))
        assert one.engine.begun.get(timeout=HANGS) == 0
        one.begin(99)
        assert one.engine.begun.empty(), "a batch has one thread"


def test_what_is_opened_is_handed_over() -> None:
    with setup() as one:
        sequence = one.begin(1)
        one.engine.may.release()
        assert one.inbox.get(timeout=HANGS) == Opened(sequence, None)
        assert not one.opener.withdraw(sequence.id)


def test_a_step_is_stopped_for_it_unless_it_is_of_a_batch() -> None:
    with setup() as one, one.interruption.allowed():
        one.engine.may.release(2)
        one.opener.add(new(1, priority=-1))
        assert one.inbox.get(timeout=HANGS)
        one.opener.add(sequence := new(2))
        assert one.stops.get(timeout=HANGS)
        assert one.inbox.get(timeout=HANGS) == Opened(sequence, None)
    assert [one.stops.get_nowait(), one.stops.empty()] == [False, True]


def test_a_long_set_up_does_not_hold_up_the_next() -> None:
    with setup() as one:
        one.begin(1)
        one.begin(2)
        assert NUM_THREADS == 2


def test_what_goes_wrong_is_logged_and_handed_over(caplog: pytest.LogCaptureFixture) -> None:
    with setup() as one:
        one.begin(13)
        one.engine.may.release()
        opened = one.inbox.get(timeout=HANGS)
    assert isinstance(opened, Opened)
    assert isinstance(opened.error, EngineFailed)
    assert "luck" not in str(opened.error)
    assert "ZeroDivisionError: no luck" in caplog.text


def test_what_is_withdrawn_is_closed_and_never_handed_over() -> None:
    with setup() as one:
        assert one.opener.withdraw(one.begin(1).id)
        one.engine.may.release()
        assert one.engine.closed.get(timeout=HANGS) == 1
        assert not one.engine.open_sequences
    assert not len(one.inbox)


def test_what_is_withdrawn_before_its_turn_is_not_even_opened() -> None:
    with setup() as one:
        for number in range(NUM_THREADS):
            one.begin(number)
        one.opener.add(new(5))
        assert one.opener.withdraw(SequenceId(5))
    assert one.engine.begun.empty()


def test_nothing_is_opened_after_the_end() -> None:
    with setup() as one:
        one.begin(1)
    one.opener.add(new(2))
    assert one.engine.begun.empty()
    assert not len(one.inbox), "the end came before it was open"


def test_a_sequence_that_asks_for_what_is_not_there_gets_an_error() -> None:
    setup = Setup()
    one = setup.begin(12)
    setup.engine.may.release()
    opened = setup.inbox.get(timeout=HANGS)
    assert opened == Opened(one, ModelNotFound("its adapter is gone"))
    setup.opener.close()


def test_text_does_not_wait_while_media_are_encoded() -> None:
    with setup() as one:
        media = Prompt(Media(b"picture", 3), (5,))
        for number in range(1, NUM_THREADS + 2):
            one.opener.add(replace(new(number), prompt=media))
        assert one.engine.begun.get(timeout=HANGS) == 1, "one at a time"
        one.begin(9)
        assert one.engine.begun.empty()


class OneOnDisk:
    """Has one block of any prompt."""

    FOUND = OnDisk(("a",))

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    def find(self, prompt: Prompt) -> OnDisk | None:
        self.asked.append(prompt)
        if len(self.asked) > 1:
            raise ZeroDivisionError("no luck")
        return self.FOUND

    def read(self, wanted: ReadBlocks, reply: Callable[[StoredPrompt | None], None]) -> None: ...
    def offer(self, left: Left) -> None: ...


def test_prompts_are_looked_up_on_disk_and_a_mistake_there_costs_nothing() -> None:
    with setup() as one:
        one.opener.disk = disk = OneOnDisk()
        found = []
        for number in (1, 2):
            one.begin(number)
            one.engine.may.release()
            opened = one.inbox.get(timeout=HANGS)
            assert isinstance(opened, Opened) and opened.error is None
            found.append(opened.sequence.on_disk)
        assert found == [disk.FOUND, None]
        shifted = replace(new(3), shift=ContextShift(1, 1))
        one.engine.may.release()
        one.opener.add(shifted)
        opened = one.inbox.get(timeout=HANGS)
        assert isinstance(opened, Opened) and opened.sequence == shifted
        assert len(disk.asked) == 2
