"""The engine's thread, over a fake engine."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest

from arriero.agent.engine.adapter import AdapterError
from arriero.agent.engine.capacity import BLOCK
from arriero.agent.engine.engine import LoadEngine
from arriero.agent.engine.llama.cells.state_format import parse
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.blocks import Left, OnDisk, ReadBlocks
from arriero.agent.engine.prompt_store.cache_folder import CacheFolder
from arriero.agent.engine.prompt_store.disk_cache import DiskCache
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId, SequenceOutput
from arriero.agent.engine.speculation.drafter import Drafter, DraftRequest, Proposal, StepPrices
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from arriero.agent.engine.statistics import NOTHING_DONE
from arriero.agent.engine.step import Aborted, Failed, NoRoom, Outcome, Step
from arriero.agent.engine.worker import COMMANDS_PER_SLOT, Worker
from arriero.shared.errors import EngineFailed
from arriero.shared.reports.statistics import Cells
from tests.agent.engine.fake_engine import FakeEngine, next_token, run_alone, stored_prompt
from tests.agent.engine.prompt_store.test_prompt_store import ORIGIN
from tests.agent.engine.speculation.fake_draft_model import FakeDraftModel
from tests.waiting import HANGS

NEVER_OVER = 1e6
"""Seconds: what takes so long is not waited for to its end."""

DEMO_MODEL = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"


class GatedEngine(FakeEngine):
    """Stops before each step until it may go on."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def execute(self, step: Step) -> Outcome:
        self.arrived.release()
        if not self.gate.acquire(timeout=HANGS):
            raise TimeoutError("nobody opened the gate")
        return super().execute(step)


class StoppableEngine(FakeEngine):
    """From its second step on, each takes until it is stopped, or may `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.num_stopped = 0

    def stop(self, is_wanted: bool) -> None:
        super().stop(is_wanted)
        if is_wanted:
            self.go_on.set()

    def execute(self, step: Step) -> Outcome:
        if self.steps:
            self.arrived.release()
            assert self.go_on.wait(HANGS)
        if self.must_stop:
            self.num_stopped += 1
            self.go_on.clear()
            self.fail_next(Aborted())
        return super().execute(step)


class NextTokenDrafter:
    """Knows what comes, and writes down what is reported; a `fragile` one fails when it is."""

    def __init__(self, *, fragile: bool = False) -> None:
        self.gained: dict[int, tuple[int, ...]] = {}
        self.over: list[int] = []
        self.num_saving = 0
        self._fragile = fragile

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        return {request.id: self._proposal(request) for request in requests}

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        self.num_saving += saved > 0

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        if self._fragile:
            raise ZeroDivisionError("no guess")
        self.gained[id] = (*self.gained.get(id, ()), *tokens)

    def forget(self, id: SequenceId) -> None:
        self.over.append(id)

    def _proposal(self, request: DraftRequest) -> Proposal:
        history = list(request.history.tokens)
        for _ in range(request.most):
            history.append(next_token(history))
        return Proposal(tuple(history[-request.most :]), (0.9,) * request.most)


class Setup:
    """A worker and what it said. Every step takes as long, whatever its size, so drafts pay."""

    def __init__(self, engine: FakeEngine, drafter: Drafter | None = None) -> None:
        self.engine = engine
        self.outputs: queue.Queue[tuple[SequenceOutput, ...]] = queue.Queue()
        self.crashes: queue.Queue[BaseException] = queue.Queue()
        self.changes = threading.Semaphore(0)
        self.worker = Worker(
            Path("model.gguf"),
            LoadOptions(
                slots=engine.num_slots,
                context_size=engine.context_size,
                threads=1,
                max_stall=0.5,
                gpu_layers=0,
            ),
            on_step=self.outputs.put,
            on_crash=self.crashes.put,
            on_change=self.changes.release,
            load=engine.load,
            make_drafter=LookupDrafter if drafter is None else lambda longest: drafter,
            gathering=NEVER_OVER,
            clock=lambda: 0.002 * len(engine.steps),
        )

    def wait_for_ends(self, count: int) -> dict[int, tuple[tuple[int, ...], object]]:
        tokens: dict[int, tuple[int, ...]] = {}
        ends: dict[int, object] = {}
        while len(ends) < count:
            for output in self.outputs.get(timeout=HANGS):
                tokens[output.id] = tokens.get(output.id, ()) + output.tokens
                if output.end is not None:
                    ends[output.id] = output.end.reason
        return {number: (tokens[number], reason) for number, reason in ends.items()}


@contextmanager
def started(engine: FakeEngine, drafter: Drafter | None = None) -> Iterator[Setup]:
    setup = Setup(engine, drafter)
    setup.worker.start()
    try:
        yield setup
    finally:
        setup.worker.stop()
    assert engine.is_freed


def new(number: int, *prompt: int, max_tokens: int | None = None) -> NewSequence:
    return NewSequence(
        id=SequenceId(number),
        prompt=Prompt(prompt),
        max_tokens=max_tokens,
        sampling=Sampling(seed=0, temperature=0),
    )


def test_start_answers_the_model() -> None:
    with started(FakeEngine()) as setup:
        assert setup.engine.model.info.name == "fake"


def test_every_sequence_gets_its_own_tokens() -> None:
    sequences = [new(n, n, n + 1, max_tokens=10 + n) for n in range(1, 12)]
    with started(FakeEngine(slots=3)) as setup:
        for sequence in sequences:
            setup.worker.submit(sequence)
        ended = setup.wait_for_ends(len(sequences))
        assert ended == {one.id: run_alone(one, 64) for one in sequences}
    assert not setup.engine.open_sequences


def test_what_is_proposed_before_a_step_is_computed_with_it() -> None:
    drafter = NextTokenDrafter()
    one = new(1, 5, 6, max_tokens=40)
    alone = run_alone(one, 64)
    with started(FakeEngine(max_draft=3), drafter) as setup:
        setup.worker.submit(one)
        assert setup.wait_for_ends(1) == {1: alone}
        statistics = setup.worker.statistics()
    assert statistics.accepted_tokens == statistics.drafted_tokens > 0
    assert drafter.gained == {1: alone[0]}
    assert drafter.num_saving > 0
    assert drafter.over == [1]


def test_a_draft_model_drafts_for_the_engine_that_has_one() -> None:
    draft_model = FakeDraftModel(guess=next_token)
    one = new(1, 5, 6, max_tokens=40)
    with started(FakeEngine(max_draft=3, draft_model=draft_model)) as setup:
        setup.worker.submit(one)
        assert setup.wait_for_ends(1) == {1: run_alone(one, 64)}
        assert setup.worker.statistics().accepted_tokens > 0
    assert draft_model.calls


def test_a_drafter_hears_of_a_drop() -> None:
    drafter = NextTokenDrafter()
    engine = GatedEngine(max_draft=3)
    with started(engine, drafter) as setup:
        setup.worker.submit(new(1, 5, 6))
        assert engine.arrived.acquire(timeout=HANGS)
        setup.worker.drop(SequenceId(1))
        engine.gate.release(100)
    assert drafter.over == [1]


def test_a_drafter_that_fails_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    sequences = [new(n, n, n + 1, max_tokens=20) for n in range(1, 4)]
    with started(FakeEngine(max_draft=3), NextTokenDrafter(fragile=True)) as setup:
        for sequence in sequences:
            setup.worker.submit(sequence)
        assert setup.wait_for_ends(3) == {one.id: run_alone(one, 64) for one in sequences}
        assert setup.crashes.empty()
        assert setup.changes.acquire(timeout=HANGS)
        assert setup.worker.draft_failure() == "ZeroDivisionError: no guess"
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "drafter" in record.message


def test_commands_that_wait_for_a_step_are_bounded_and_counted() -> None:
    engine = GatedEngine(slots=1)
    with started(engine) as setup:
        worker = setup.worker
        worker.submit(new(1, 5, 6, max_tokens=1))
        assert engine.arrived.acquire(timeout=HANGS)
        assert worker.current_step() == 1
        num_taken = 0
        while worker.has_room():
            num_taken += 1
            worker.forget(SequenceId(100 + num_taken))
        assert num_taken == COMMANDS_PER_SLOT
        assert worker.statistics().num_commands == COMMANDS_PER_SLOT
        unread: list[StoredPrompt | None] = []
        worker.hand_out(Prompt((5, 6)), unread.append)
        assert unread == [None], "a prefix is not handed out then, either"
        assert not setup.changes.acquire(blocking=False)
        engine.gate.release()
        assert setup.changes.acquire(timeout=HANGS)
        assert worker.has_room()
        setup.wait_for_ends(1)
    assert worker.current_step() is None


def test_without_speculation_no_drafter_is_made() -> None:
    made: list[int] = []
    engine = FakeEngine()
    worker = Worker(
        Path("model.gguf"),
        LoadOptions(slots=2, context_size=64, threads=1, max_stall=0.5, gpu_layers=0),
        on_step=lambda outputs: None,
        on_crash=lambda error: None,
        load=engine.load,
        make_drafter=lambda longest: made.append(longest) or LookupDrafter(longest),
    )
    worker.start()
    worker.stop()
    assert made == []


def test_an_idle_engine_does_nothing_and_wakes_up_again() -> None:
    with started(FakeEngine()) as setup:
        setup.worker.submit(new(1, 5, max_tokens=3))
        setup.wait_for_ends(1)
        setup.worker.submit(new(2, 6, max_tokens=3))
        assert setup.wait_for_ends(1) == {2: run_alone(new(2, 6, max_tokens=3), 64)}
        # The thread has gone to sleep when stop() returns, whatever it was doing.
        setup.worker.stop()
    # At most: three tokens and a clearing step each, nothing more however long it was idle.
    assert len(setup.engine.steps) <= 8


def test_a_request_with_nothing_to_do_ends() -> None:
    with started(FakeEngine()) as setup:
        setup.worker.submit(new(1, 5, max_tokens=0))
        assert setup.wait_for_ends(1) == {1: ((), "length")}


def test_after_a_drop_nothing_comes_and_the_slot_serves_the_next() -> None:
    engine = GatedEngine(slots=1)
    with started(engine) as setup:
        setup.worker.submit(new(1, 5))
        assert engine.arrived.acquire(timeout=HANGS)
        setup.worker.drop(SequenceId(1))
        setup.worker.submit(new(2, 6, max_tokens=1))
        engine.gate.release(100)
        seen = [setup.outputs.get(timeout=HANGS)]
        while all(output.end is None for output in seen[-1]):
            seen.append(setup.outputs.get(timeout=HANGS))
        ids = [output.id for outputs in seen for output in outputs]
        assert ids == [1, 2], "the step that ran when the drop came is the last with it"
    assert not engine.open_sequences


def test_one_call_a_step_with_all_outputs() -> None:
    engine = GatedEngine(slots=2, context_size=2048)
    with started(engine) as setup:
        for number in (1, 2):
            setup.worker.submit(new(number, 5, max_tokens=1000))
        call: tuple[SequenceOutput, ...] = ()
        while len(call) < 2:
            engine.gate.release()
            # A step that reads a part of a prompt, as on a slow machine, has no output.
            with suppress(queue.Empty):
                call = setup.outputs.get(timeout=0.05)
        engine.gate.release(3000)
    assert {output.id for output in call} == {1, 2}


def test_the_first_step_of_an_idle_engine_has_all_that_are_expected() -> None:
    engine = GatedEngine(slots=2)
    with started(engine) as setup:
        setup.worker.expect(SequenceId(2), is_background=False)
        setup.worker.submit(new(1, 5))
        assert not engine.arrived.acquire(timeout=0.05)  # no step begins
        setup.worker.submit(new(2, 5))
        engine.gate.release(100)
        assert {output.id for output in setup.outputs.get(timeout=HANGS)} == {1, 2}


def test_no_step_waits_for_a_batch_that_is_expected() -> None:
    engine = GatedEngine(slots=2)
    with started(engine) as setup:
        setup.worker.expect(SequenceId(2), is_background=True)
        setup.worker.submit(new(1, 5))
        engine.gate.release(100)
        assert {output.id for output in setup.outputs.get(timeout=HANGS)} == {1}


@pytest.mark.parametrize("how", ["forget", "drop"])
def test_a_sequence_that_is_not_expected_any_more_is_not_waited_for(how: str) -> None:
    engine = GatedEngine(slots=2)
    with started(engine) as setup:
        setup.worker.expect(SequenceId(2), is_background=False)
        setup.worker.submit(new(1, 5))
        getattr(setup.worker, how)(SequenceId(2))
        engine.gate.release(100)
        assert setup.outputs.get(timeout=HANGS)


def test_a_busy_engine_waits_for_no_sequence() -> None:
    engine = GatedEngine(slots=2)
    with started(engine) as setup:
        setup.worker.submit(new(1, 5, max_tokens=40))
        assert engine.arrived.acquire(timeout=HANGS)
        setup.worker.expect(SequenceId(3), is_background=False)
        setup.worker.submit(new(2, 7, max_tokens=40))
        joined: set[int] = set()
        while joined != {1, 2}:
            engine.gate.release()
            joined = {output.id for output in setup.outputs.get(timeout=HANGS)}
        engine.gate.release(100)


@pytest.mark.parametrize("outcome", [NoRoom(), Aborted()])
def test_a_step_that_did_not_work_is_survived(outcome: NoRoom | Aborted) -> None:
    engine = FakeEngine()
    engine.fail_next(outcome)
    with started(engine) as setup:
        setup.worker.submit(new(1, 5, 6, 7, max_tokens=4))
        assert setup.wait_for_ends(1) == {1: run_alone(new(1, 5, 6, 7, max_tokens=4), 64)}


def test_a_failed_step_ends_its_sequences_and_the_next_ones_run() -> None:
    engine = FakeEngine()
    engine.fail_next(Failed("the kernel is gone"))
    with started(engine) as setup:
        setup.worker.submit(new(1, 5))
        ((_, reason),) = setup.wait_for_ends(1).values()
        assert reason == EngineFailed("the engine failed: the kernel is gone")
        setup.worker.submit(new(2, 6, max_tokens=3))
        assert setup.wait_for_ends(1) == {2: run_alone(new(2, 6, max_tokens=3), 64)}


def test_what_the_engine_did_can_be_asked() -> None:
    with started(FakeEngine()) as setup:
        assert setup.worker.statistics() == replace(NOTHING_DONE, cells=Cells(total=128))
        setup.worker.submit(new(1, 5, 6, max_tokens=3))
        setup.wait_for_ends(1)
        setup.worker.stop()
        statistics = setup.worker.statistics()
    assert statistics.completion_tokens == 3
    assert statistics.computed_tokens == 2
    assert statistics.cells.total == 128
    assert statistics.cells.kept == 4


def test_what_was_chosen_and_is_no_answer_ends_with_the_reason() -> None:
    engine = GatedEngine()
    engine.failures[SequenceId(1)] = "its grammar takes too much work"
    with started(engine) as setup:
        setup.worker.submit(replace(new(1, 9, 9, 9), prefill_only=True))
        engine.gate.release(100)
        (last,) = setup.outputs.get(timeout=HANGS)
    assert last.end is not None
    assert last.end.reason == EngineFailed("its grammar takes too much work")


def test_a_drop_that_leaves_nothing_to_do_shows() -> None:
    engine = GatedEngine(slots=1)
    with started(engine) as setup:
        setup.worker.submit(new(1, 5))
        assert engine.arrived.acquire(timeout=HANGS)
        setup.worker.drop(SequenceId(1))
        engine.gate.release(100)
        setup.worker.stop()
        assert setup.worker.statistics().num_running == 0


def test_a_step_of_batch_requests_is_stopped_for_others_and_for_them_alone() -> None:
    engine = StoppableEngine()
    batch = [replace(new(number, 5, number), priority=-1) for number in (1, 2)]
    with started(engine) as setup:
        setup.worker.submit(batch[0])
        assert engine.arrived.acquire(timeout=HANGS)
        setup.worker.submit(batch[1])
        setup.worker.submit(other := new(3, 7, 7))
        assert engine.arrived.acquire(timeout=HANGS), "the step after the one that was stopped"
        engine.go_on.set()
        ends = setup.wait_for_ends(3)
    assert engine.num_stopped == 1
    assert ends == {each.id: run_alone(each, engine.context_size) for each in (*batch, other)}


def test_a_model_that_does_not_load_is_an_error_of_the_start() -> None:
    class Broken(FakeEngine):
        def load(self, *_: object, **__: object) -> FakeEngine:
            raise ModelError("model file model.gguf does not exist: check --model")

    setup = Setup(Broken())
    with pytest.raises(ModelError, match="does not exist"):
        setup.worker.start()
    setup.worker.stop()
    assert setup.crashes.empty()


def test_a_crash_is_logged_and_reported_and_the_model_stays_until_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Crashing(FakeEngine):
        is_stopping = threading.Event()
        was_stopping = False

        def execute(self, step: Step) -> Outcome:
            raise MemoryError("no more")

        def free(self) -> None:
            self.was_stopping = self.is_stopping.is_set()
            super().free()

    with started(engine := Crashing()) as setup:
        setup.worker.submit(new(1, 5))
        assert isinstance(setup.crashes.get(timeout=HANGS), MemoryError)
        setup.worker.drop(SequenceId(1))
        assert not engine.is_freed
        engine.is_stopping.set()
    assert engine.was_stopping, "others were using its vocabulary"
    assert "the engine's thread stops" in caplog.text
    assert "MemoryError: no more" in caplog.text


class Faulty(FakeEngine):
    """Fails in everything that it does for sequence 2 alone, from `failing` on."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self._failing = failing

    def open(self, sequence: NewSequence) -> None:
        super().open(sequence)
        self._trip("open", sequence.id)

    def failure(self, sequence_id: SequenceId) -> str | None:
        self._trip("failure", sequence_id)
        return super().failure(sequence_id)

    def close(self, sequence_id: SequenceId) -> None:
        super().close(sequence_id)
        self._trip("close", sequence_id)

    def _trip(self, what: str, id: SequenceId) -> None:
        if what == self._failing and id == 2:
            raise ZeroDivisionError("no luck")


@pytest.mark.parametrize("failing", ["open", "failure", "close"])
def test_what_fails_for_one_sequence_ends_it_and_no_other(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = new(1, 5, max_tokens=30)
    with started(Faulty(failing)) as setup:
        setup.worker.submit(other)
        setup.worker.submit(replace(new(2, 9, 9, 9), prefill_only=True))
        ended = setup.wait_for_ends(2)
        setup.worker.submit(new(3, 6, max_tokens=3))
        assert setup.wait_for_ends(1) == {3: run_alone(new(3, 6, max_tokens=3), 64)}
        assert setup.crashes.empty()
    assert ended[1] == run_alone(other, 64)
    (_, reason) = ended[2]
    if failing == "close":
        assert reason == "stop"
    else:
        assert isinstance(reason, EngineFailed)
        assert "luck" not in str(reason)
    assert "ZeroDivisionError: no luck" in caplog.text


def test_stop_does_not_wait_for_the_sequences() -> None:
    engine = GatedEngine(context_size=1_000_000)
    setup = Setup(engine)
    setup.worker.start()
    setup.worker.submit(new(1, 5))
    assert engine.arrived.acquire(timeout=HANGS)
    stopper = threading.Thread(target=setup.worker.stop)
    stopper.start()
    while stopper.is_alive():
        engine.gate.release()
        stopper.join(0.001)
    assert engine.is_freed
    while not setup.outputs.empty():
        assert all(output.end is None for output in setup.outputs.get())


def test_a_worker_that_was_not_started_frees_nothing() -> None:
    setup = Setup(FakeEngine())
    setup.worker.stop()
    assert not setup.engine.is_freed


def test_a_second_stop_frees_nothing_again() -> None:
    class Freed(FakeEngine):
        num_times = 0

        def free(self) -> None:
            self.num_times += 1
            super().free()

    with started(engine := Freed()) as setup:
        setup.worker.stop()
    assert engine.num_times == 1


def test_the_demo_model_answers_alike_alone_and_in_a_crowd() -> None:
    outputs: queue.Queue[tuple[SequenceOutput, ...]] = queue.Queue()
    worker = Worker(
        DEMO_MODEL,
        LoadOptions(slots=4, context_size=256, threads=1, max_stall=0.5, gpu_layers=0),
        on_step=outputs.put,
        on_crash=lambda error: None,
    )
    vocab = worker.start().vocab
    prompts = [
        vocab.tokenize(text, add_special=True, parse_special=True)
        for text in ("What is a slot?", "Hello", "A balancer", "Why?", "queue " * 30, "{")
    ]

    def generate(numbers: list[int]) -> dict[int, tuple[int, ...]]:
        for number in numbers:
            worker.submit(new(number, *prompts[number % 100], max_tokens=12 + number % 100))
        tokens = dict.fromkeys(numbers, ())
        left = len(numbers)
        while left:
            for output in outputs.get(timeout=HANGS):
                tokens[output.id] += output.tokens
                left -= output.end is not None
        return {number % 100: one for number, one in tokens.items()}

    alone: dict[int, tuple[int, ...]] = {}
    for number in range(6):
        alone |= generate([number])
    crowd = generate([100 + number for number in range(6)])
    worker.stop()
    assert crowd == alone


def answered(prompt: str, *, speculate: int) -> tuple[bytes, int, int, int]:
    """The demo model's answer, its tokens, the steps that gave them, and the accepted drafts.

    Every step takes as long by the clock, so a draft costs nothing.
    """
    outputs: queue.Queue[tuple[SequenceOutput, ...]] = queue.Queue()
    milliseconds = count()
    worker = Worker(
        DEMO_MODEL,
        LoadOptions(
            slots=1, context_size=512, threads=1, max_stall=0.5, gpu_layers=0, speculate=speculate
        ),
        on_step=outputs.put,
        on_crash=lambda error: None,
        clock=lambda: next(milliseconds) / 1000,
    )
    vocab = worker.start().vocab
    try:
        tokens = vocab.tokenize(prompt, add_special=True, parse_special=True)
        worker.submit(new(1, *tokens, max_tokens=120))
        steps = [outputs.get(timeout=HANGS)[0]]
        while steps[-1].end is None:
            steps.append(outputs.get(timeout=HANGS)[0])
    finally:
        worker.stop()
    given = [token for step in steps for token in step.tokens]
    text = b"".join(map(vocab.piece, given))
    return text, len(given), len(steps), worker.statistics().accepted_tokens


def test_most_of_an_answer_that_was_given_before_is_drafted() -> None:
    turn = "<|im_start|>user\nWhat is a slot?<|im_end|>\n<|im_start|>assistant\n"
    first, *_ = answered(turn, speculate=0)
    again = f"{turn}{first.decode()}<|im_end|>\n{turn}"
    alone, num_tokens, _, none = answered(again, speculate=0)
    text, _, num_steps, accepted = answered(again, speculate=6)
    assert none == 0
    assert text == alone
    assert num_tokens / 2 < accepted
    assert num_steps < num_tokens / 2


def test_adapters_come_and_go() -> None:
    one, other = Path("one.gguf"), Path("other.gguf")
    with started(FakeEngine()) as setup:
        setup.worker.use_adapters({"1": one, "2": other})
        assert setup.engine.adapters == {"1": one, "2": other}
        setup.worker.use_adapters({"2": other})
        assert setup.engine.adapters == {"2": other}
        with pytest.raises(AdapterError, match=r"broken\.gguf") as caught:
            setup.worker.use_adapters({"1": one, "3": Path("broken.gguf")})
        assert caught.value.digest == "3"
        assert setup.engine.adapters == {"2": other}, "as before"


def test_steps_go_on_while_the_file_of_an_adapter_is_read() -> None:
    engine = FakeEngine()
    is_reading, may_end = threading.Event(), threading.Event()

    def read() -> None:
        is_reading.set()
        if not may_end.wait(HANGS):
            raise TimeoutError("nobody let the file end")

    engine.on_load = read
    with started(engine) as setup, ThreadPoolExecutor(1) as loader:
        loading = loader.submit(setup.worker.use_adapters, {"1": Path("one.gguf")})
        assert is_reading.wait(HANGS)
        num_before = len(engine.steps)
        setup.worker.submit(new(1, 5, 6, max_tokens=30))
        assert setup.wait_for_ends(1) == {1: run_alone(new(1, 5, 6, max_tokens=30), 64)}
        assert len(engine.steps) >= num_before + 30
        assert not engine.adapters, "it is still being read"
        may_end.set()
        loading.result(HANGS)
        assert engine.adapters == {"1": Path("one.gguf")}


def test_a_load_that_the_end_of_the_engine_meets_ends_as_well() -> None:
    engine = FakeEngine()
    is_reading, may_end = threading.Event(), threading.Event()

    def read() -> None:
        is_reading.set()
        if not may_end.wait(HANGS):
            raise TimeoutError("nobody let the file end")

    engine.on_load = read
    with ThreadPoolExecutor(1) as loader:
        with started(engine) as setup:
            loading = loader.submit(setup.worker.use_adapters, {"1": Path("one.gguf")})
            assert is_reading.wait(HANGS)
        may_end.set()
        assert isinstance(loading.exception(HANGS), EngineFailed)
    assert not engine.adapters


def test_a_step_is_computed_under_the_adapter_of_its_sequences() -> None:
    engine = FakeEngine(slots=2)
    under = replace(new(2, 5, 6), prompt=Prompt((5, 6), adapter="A*1.0"))
    with started(engine) as setup:
        setup.worker.submit(new(1, 5, 6))
        setup.worker.submit(under)
        ends = setup.wait_for_ends(2)
    assert ends == {1: run_alone(new(1, 5, 6), 64), 2: run_alone(under, 64)}
    assert ends[1] != ends[2]


def test_a_prefix_that_was_computed_is_handed_out() -> None:
    answers: queue.Queue[StoredPrompt | None] = queue.Queue()
    with started(FakeEngine()) as setup:
        setup.worker.submit(new(1, 5, 6, 7, max_tokens=3))
        setup.wait_for_ends(1)
        for tokens in ((5, 6, 7), (8,)):
            setup.worker.hand_out(Prompt(tokens), answers.put)
        assert answers.get(timeout=HANGS) == stored_prompt(5, 6, 7)
        assert answers.get(timeout=HANGS) is None


@pytest.mark.parametrize("load", [FakeEngine(slots=1).load, load_engine], ids=["fake", "llama.cpp"])
def test_what_is_taken_back_is_not_handed_out(load: LoadEngine) -> None:
    answers: queue.Queue[StoredPrompt | None] = queue.Queue()
    unwanted: list[StoredPrompt | None] = []

    def stepped(outputs: tuple[SequenceOutput, ...]) -> None:
        """Between two steps: one is not read before the other."""
        take_back = worker.hand_out(Prompt((5, 6, 7)), unwanted.append)
        worker.hand_out(Prompt((5, 6)), answers.put)
        take_back()

    worker = Worker(
        DEMO_MODEL,
        LoadOptions(slots=1, context_size=64, threads=1, max_stall=0.5, gpu_layers=0),
        on_step=stepped,
        on_crash=lambda error: None,
        load=load,
    )
    worker.start()
    try:
        worker.submit(new(1, 5, 6, 7, max_tokens=3))
        prefix = answers.get(timeout=HANGS)
    finally:
        worker.stop()
    assert prefix is not None and prefix.prompt == Prompt((5, 6))
    assert unwanted == []


class MemoryDisk:
    """Has what it is offered, and reads it when it may."""

    def __init__(self) -> None:
        self.offered: queue.Queue[Left] = queue.Queue()
        self.found: OnDisk | None = None
        self.reads: queue.Queue[tuple[ReadBlocks, Callable[[StoredPrompt | None], None]]] = (
            queue.Queue()
        )

    def find(self, prompt: Prompt) -> OnDisk | None:
        return self.found

    def read(self, wanted: ReadBlocks, reply: Callable[[StoredPrompt | None], None]) -> None:
        self.reads.put((wanted, reply))

    def offer(self, left: Left) -> None:
        self.offered.put(left)


def test_what_a_sequence_leaves_is_offered_to_the_disk() -> None:
    prompt = [1 + i % 40 for i in range(BLOCK + 5)]
    engine = FakeEngine(context_size=2 * BLOCK, batch_size=BLOCK)
    with started(engine) as setup:
        setup.worker.use_disk(disk := MemoryDisk())
        setup.worker.submit(new(1, *prompt, max_tokens=2))
        left = disk.offered.get(timeout=HANGS)
        assert left.prompt == Prompt(tuple(prompt[:BLOCK]))
        answers: queue.Queue[StoredPrompt | None] = queue.Queue()
        setup.worker.hand_out(left.prompt, answers.put, start=100, can_wait=True)
        rest = answers.get(timeout=HANGS)
        assert rest is not None
        assert (rest.start, rest.prompt) == (100, left.prompt)
        assert sum(piece.num_tokens for piece in rest.pieces) == BLOCK - 100


def test_a_newcomer_waits_for_the_disk_while_others_go_on_and_an_idle_engine_sleeps() -> None:
    prompt = tuple(range(1, 10))
    with started(FakeEngine(slots=2)) as setup:
        setup.worker.use_disk(disk := MemoryDisk())
        disk.found = OnDisk(("a", "b"), block=4)
        setup.worker.submit(new(1, *prompt, max_tokens=3))
        wanted, reply = disk.reads.get(timeout=HANGS)
        assert (wanted.prompt, wanted.start) == (Prompt(prompt[:8]), 0)
        disk.found = None
        setup.worker.submit(new(2, 30, max_tokens=3))
        assert setup.wait_for_ends(1).keys() == {2}
        num_steps = len(setup.engine.steps)
        reply(stored_prompt(*prompt[:8], piece=4))
        assert setup.wait_for_ends(1) == {1: run_alone(new(1, *prompt, max_tokens=3), 64)}
        assert len(setup.engine.steps) - num_steps < 8
        assert setup.worker.statistics().cached_tokens == 8


def test_what_cannot_be_read_from_disk_is_computed() -> None:
    prompt = tuple(range(1, 10))
    with started(FakeEngine()) as setup:
        setup.worker.use_disk(disk := MemoryDisk())
        disk.found = OnDisk(("a", "b"), block=4)
        setup.worker.submit(one := new(1, *prompt, max_tokens=3))
        _, reply = disk.reads.get(timeout=HANGS)
        reply(None)
        assert setup.wait_for_ends(1) == {1: run_alone(one, 64)}
        assert setup.worker.statistics().cached_tokens == 0


@contextmanager
def with_disk(folder: Path) -> Iterator[tuple[Worker, DiskCache, queue.Queue[SequenceOutput]]]:
    """The demo model's engine, and what it gives."""
    outputs: queue.Queue[SequenceOutput] = queue.Queue()
    worker = Worker(
        DEMO_MODEL,
        LoadOptions(slots=1, context_size=1024, threads=1, max_stall=0.5, gpu_layers=0),
        on_step=lambda given: [*map(outputs.put, given)],
        on_crash=lambda error: None,
        load=load_engine,
    )
    cell_bytes = worker.start().cell_bytes
    assert cell_bytes is not None
    disk = DiskCache(
        CacheFolder(folder, limit_bytes=10**9),
        origin=ORIGIN,
        cell_bytes=cell_bytes,
        hand_out=worker.hand_out,
    )
    try:
        worker.use_disk(disk)
        yield worker, disk, outputs
    finally:
        disk.close()
        worker.stop()


def keys_and_values(worker: Worker, tokens: Sequence[int]) -> list[bytes]:
    """What the cells of `tokens` contain, layer by layer."""
    answers: queue.Queue[StoredPrompt | None] = queue.Queue()
    worker.hand_out(Prompt(tuple(tokens)), answers.put)
    prefix = answers.get(timeout=HANGS)
    assert prefix is not None and len(prefix.prompt) == len(tokens)
    pieces = [parse(piece.state) for piece in prefix.pieces]
    return [
        np.concatenate([part.cells for part in parts], axis=1).tobytes()
        for parts in zip(*(piece.parts for piece in pieces), strict=True)
    ]


def test_what_comes_from_disk_is_what_was_computed_bit_for_bit(tmp_path: Path) -> None:
    """Also where memory has its beginning, and only the rest is read."""
    draw = Random(3)
    first = [draw.randrange(10, 300) for _ in range(3 * BLOCK + 10)]
    other = first[: BLOCK + 9] + [draw.randrange(10, 300) for _ in range(2 * BLOCK)]
    prompts = (first, other)

    def ask(number: int) -> int:
        sequence = new(number, *prompts[number], max_tokens=1)
        worker.submit(sequence)
        while (end := outputs.get(timeout=HANGS).end) is None:
            pass
        return end.stats.cached_tokens

    with with_disk(tmp_path) as (worker, disk, outputs):
        computed = []
        for number, prompt in enumerate(prompts):
            ask(number)
            disk.offer(Left(Prompt(tuple(prompt[: 3 * BLOCK])), NEVER_OVER))
            disk.finish(HANGS)
            computed.append(keys_and_values(worker, prompt[: 3 * BLOCK]))
        assert disk.use.written == 5
    with with_disk(tmp_path) as (worker, disk, outputs):
        assert [ask(0), ask(1)] == [3 * BLOCK, 3 * BLOCK]
        assert disk.use.read == 5
        assert [keys_and_values(worker, one[: 3 * BLOCK]) for one in prompts] == computed
