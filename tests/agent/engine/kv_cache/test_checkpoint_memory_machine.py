"""Checkpoints on llama.cpp: whatever is shared, answers are those that each prompt gets alone.

Rounding differs with what is computed together, so log-probabilities may differ by a little, and
texts from where two tokens are about equally likely.

The models are small ones of each kind of memory that cannot be cut (`bench.small_models`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.blocks import OnDisk
from arriero.agent.engine.prompt_store.cache_folder import CacheFolder
from arriero.agent.engine.prompt_store.disk_cache import DiskCache, Reply
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.scheduling.exports import ExportId
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceEnd, SequenceId
from arriero.agent.engine.speculation.drafter import DraftRequest, Proposal
from arriero.agent.engine.step import Decoded
from bench.small_models import RECURRENT, WINDOWED
from tests.agent.engine.llama.running import GREEDY, wipe
from tests.agent.engine.prompt_store.test_prompt_store import ORIGIN
from tests.waiting import HANGS

KINDS = (*WINDOWED, *(f"{name} off" for name in WINDOWED), *RECURRENT)
EACH_MEMORY = ("gemma3", "gpt-oss off", "qwen35 drafts", "mamba2")
"""One of each kind of memory: for tests of what no architecture changes."""
DRAFTING = ("gemma3 drafts", "gpt-oss off drafts", "qwen35 drafts", "lfm2 drafts")
CONTEXT = 256
ANSWER = 12
BLOCK = 16
"""Cells that are parked together: prompts here have several blocks."""

ROUNDING = 0.02
"""How much log-probabilities may differ: those of another state differ by 1 and more."""

Tokens = tuple[int, ...]


def proposals(
    requests: Iterable[DraftRequest], known: Iterable[Tokens]
) -> dict[SequenceId, Proposal]:
    """Some tokens of a text that is `known`, and something else after that."""
    found = {}
    for each in requests:
        length = len(each.history)
        so_far = tuple(each.history.tokens)
        rest = next((text[length:] for text in known if text[:length] == so_far), ())
        drafted = (*rest[: length % 4], 5)[: each.most]
        found[each.id] = Proposal(drafted, (0.9,) * len(drafted))
    return found


class Served:
    """What a scheduler over `engine` has given, by the numbers of the sequences."""

    def __init__(
        self,
        engine: LlamaEngine,
        *,
        num_cells: int = 1024,
        context_size: int = CONTEXT,
        gap: int = 8,
        most_parked: int = 2**24,
        known: Sequence[Tokens] = (),
    ) -> None:
        wipe(engine)
        self.engine = engine
        self._context_size = context_size
        self.known = known
        self.scheduler = Scheduler(
            slots=4,
            context_size=context_size,
            max_stall=0.5,
            end_tokens=frozenset(),
            capacity=replace(
                engine.capacity,
                batch_size=70,
                num_cells=num_cells,
                checkpoint_gap=gap,
                block=BLOCK,
                most_parked=most_parked,
            ),
        )
        self.prompts: list[Tokens] = []
        self.answers: list[Tokens] = []
        self.log_probs: list[tuple[LogProbs, ...]] = []
        self.ends: dict[int, SequenceEnd] = {}

    def add(
        self,
        prompt: Tokens,
        *,
        num_tokens: int = ANSWER,
        borders: Tokens = (),
        stored: StoredPrompt | None = None,
        on_disk: OnDisk | None = None,
    ) -> int:
        """It begins with what is `stored` or `on_disk`, if anything is."""
        id = SequenceId(len(self.prompts))
        sequence = NewSequence(
            id=id,
            prompt=Prompt(prompt),
            max_tokens=num_tokens,
            sampling=replace(GREEDY, top_log_probs=2),
            borders=borders,
            stored=stored,
            on_disk=on_disk,
        )
        self.prompts.append(prompt)
        self.answers.append(())
        self.log_probs.append(())
        self.engine.open(sequence)
        self.scheduler.add(sequence)
        return id

    def drop(self, number: int) -> None:
        if number not in self.ends:
            self.scheduler.drop(SequenceId(number))
            self.engine.close(SequenceId(number))

    def step(self) -> bool:
        """False where there is nothing left to do."""
        step = self.scheduler.plan(proposals(self.scheduler.draft_requests(), self.known))
        if step is None:
            return False
        outcome = self.engine.execute(step)
        assert isinstance(outcome, Decoded), outcome
        outcome = replace(outcome, move_seconds=0.0)  # measured times would size the next steps
        for output in self.scheduler.commit(step, outcome, 0.01):
            self.answers[output.id] += output.tokens
            self.log_probs[output.id] += output.log_probs
            if output.end is not None:
                self.ends[output.id] = output.end
                self.engine.close(output.id)
        self.scheduler.check_integrity()
        return True

    def finish(self) -> None:
        while self.step():
            pass

    def export(
        self, prompt: Prompt, wanted: HandOut, *, can_wait: bool = False
    ) -> StoredPrompt | None:
        self.scheduler.export(ExportId(1), prompt, wanted, can_wait=can_wait)
        while not (exported := self.scheduler.take_exported()):
            self.step()
        return exported[0].prefix

    def run(self, *prompts: Tokens, borders: Tokens = ()) -> list[int]:
        """How many tokens of each were cached, one begun after the other at once."""
        numbers = [self.add(prompt, borders=borders) for prompt in prompts]
        self.finish()
        return [self.ends[number].stats.cached_tokens for number in numbers]

    def check(self, num_tokens: int = ANSWER) -> None:
        """Each answer is what its prompt gets alone, or the beginning of that."""
        for prompt, log_probs in zip(self.prompts, self.log_probs, strict=True):
            alone = Served(self.engine, gap=0, context_size=self._context_size)
            alone.add(prompt, num_tokens=num_tokens)
            alone.finish()
            for one, other in zip(log_probs, alone.log_probs[0], strict=False):
                assert [p for _, p in one.top] == pytest.approx(
                    [p for _, p in other.top], abs=ROUNDING
                )
                if one.token != other.token:
                    assert other.top[0][1] - other.top[1][1] < ROUNDING, "not about as likely"
                    break


def text(seed: int, length: int) -> Tokens:
    return tuple(Random(seed).choices(range(300, 2000), k=length))


@pytest.fixture(params=(*KINDS, "gpt-oss off drafts", "qwen35 drafts"))
def engine(
    request: pytest.FixtureRequest, small_engine: Callable[[str], LlamaEngine]
) -> Iterator[LlamaEngine]:
    engine = small_engine(request.param)
    yield engine
    wipe(engine)


each_memory = pytest.mark.parametrize("engine", EACH_MEMORY, indirect=True)


def test_a_conversation_is_gone_on_with(engine: LlamaEngine) -> None:
    served = Served(engine)
    history = text(1, 100)
    lengths = []
    for turn in range(3):
        history += text(10 + turn, 20)
        lengths.append(len(history))
        [cached] = served.run(history)
        assert cached == (lengths[-2] + ANSWER - 1 if turn else 0)
        history += served.answers[-1]
    assert served.run(served.prompts[-1]) == [lengths[-1] - 1], "the same again"
    assert served.run(served.prompts[0]) == [lengths[0] - 1], "cut back by two turns"
    other = served.prompts[2][:-20] + text(90, 20)
    assert served.run(other) == [lengths[-2] + ANSWER - 1], "another last message"
    served.check()


@pytest.mark.parametrize("name", DRAFTING)
def test_drafts_are_taken_back(small_engine: Callable[[str], LlamaEngine], name: str) -> None:
    """Of four sequences, which draft in the same steps as prompts are read."""
    engine = small_engine(name)
    prompts = [text(60 + number, 20 + 30 * number) for number in range(4)]
    alone = Served(engine)
    for prompt in prompts:
        alone.add(prompt, num_tokens=40)
        alone.finish()
    texts = [prompt + answer for prompt, answer in zip(prompts, alone.answers, strict=True)]
    served = Served(engine, known=texts)
    for prompt in prompts:
        served.add(prompt, num_tokens=40)
    served.finish()
    statistics = served.scheduler.statistics()
    assert 30 < statistics.accepted_tokens < statistics.drafted_tokens - 30
    served.check(num_tokens=40)


@pytest.mark.parametrize("name", DRAFTING)
def test_who_stops_after_a_draft_in_vain_is_gone_on_with(
    small_engine: Callable[[str], LlamaEngine], name: str
) -> None:
    served = Served(small_engine(name))
    number = served.add(text(70, 60), num_tokens=100)
    while len(served.answers[number]) < 20:
        served.step()
    served.drop(number)
    so_far = served.prompts[number] + served.answers[number]
    assert served.run(so_far + text(71, 30)) == [len(so_far) - 1]
    served.check()


@each_memory
def test_the_first_of_many_computes_what_they_have_in_common(engine: LlamaEngine) -> None:
    served = Served(engine)
    common = text(2, 150)
    cached = served.run(*(common + text(20 + number, 15) for number in range(8)))
    assert cached == [0] + 7 * [150]
    served.check()


@each_memory
def test_a_new_session_begins_where_the_messages_of_another_did(engine: LlamaEngine) -> None:
    served = Served(engine)
    system = text(3, 120)
    assert served.run(system + text(30, 40), borders=(120,)) == [0]
    assert served.run(system + text(31, 40), borders=(120,)) == [120]
    served.check()


@each_memory
def test_whoever_is_preempted_goes_on_with_its_answer(engine: LlamaEngine) -> None:
    served = Served(engine, num_cells=CONTEXT)
    for number in range(3):
        served.add(text(40 + number, 60), num_tokens=60)
    served.finish()
    assert served.scheduler.statistics().num_preemptions > 0
    served.check(num_tokens=60)


@each_memory
def test_what_had_to_leave_the_cells_is_not_computed_again(engine: LlamaEngine) -> None:
    served = Served(engine, num_cells=300)
    histories = {seed: text(seed, 100) for seed in range(60, 65)}
    for turn in range(2):
        for seed, history in histories.items():
            prompt = history + text(10 * seed + turn, 20)
            [cached] = served.run(prompt)
            assert cached == (len(history) - 1 if turn else 0)
            histories[seed] = prompt + served.answers[-1]
    assert served.scheduler.statistics().cells.parked > 300
    served.check()


@each_memory
def test_a_stored_prompt_goes_on_branches_and_answers_again(engine: LlamaEngine) -> None:
    served = Served(engine)
    system, message = text(70, 100), text(71, 30)
    prompt = system + message
    served.run(prompt, borders=(100,))
    answer = served.answers[0]
    stored = served.export(Prompt(prompt + answer), HandOut(most_checkpoints=4))
    assert stored is not None and stored.prompt.tokens == prompt + answer[:-1]
    later = {
        len(prompt) + ANSWER - 1: prompt + answer + text(72, 20),
        100: system + text(73, 30),
        len(prompt) - 1: prompt,
    }
    for length, further in later.items():
        served = Served(engine)
        number = served.add(further, stored=stored)
        served.finish()
        assert served.ends[number].stats.cached_tokens == length
        served.check()


class ServedWithDisk(Served):
    """With the disk tier in `folder`. Its threads are here, too, and what they ask of the engine's
    thread is done by whoever calls."""

    def __init__(self, engine: LlamaEngine, folder: Path) -> None:
        super().__init__(engine, context_size=640)
        self._wanted: SimpleQueue[tuple[Prompt, int, Reply] | None] = SimpleQueue()
        self.scheduler.note_left()
        self.disk = DiskCache(
            CacheFolder(folder, limit_bytes=2**24),
            origin=ORIGIN,
            cell_bytes=engine.capacity.cell_bytes,
            state_bytes=engine.capacity.state_bytes,
            hand_out=self._hand_out,
        )

    def _hand_out(
        self, prompt: Prompt, reply: Reply, *, start: int, can_wait: bool
    ) -> Callable[[], None]:
        assert can_wait
        self._wanted.put((prompt, start, reply))
        return lambda: None

    def write(self) -> None:
        """What was left is on disk afterwards."""
        for left in self.scheduler.take_left():
            self.disk.offer(replace(left, seconds=1e6))
        with ThreadPoolExecutor(1) as threads:
            threads.submit(self.disk.finish, HANGS).add_done_callback(
                lambda _: self._wanted.put(None)
            )
            while (wanted := self._wanted.get(timeout=HANGS)) is not None:
                prompt, start, reply = wanted
                reply(self.export(prompt, HandOut(start), can_wait=True))

    def ask(self, prompt: Tokens, *, borders: Tokens = ()) -> int:
        """How many tokens of `prompt` were cached."""
        number = self.add(prompt, borders=borders, on_disk=self.disk.find(Prompt(prompt)))
        while number not in self.ends:
            self.step()
            for read in self.scheduler.take_disk_reads():
                replies: SimpleQueue[StoredPrompt | None] = SimpleQueue()
                self.disk.read(read.blocks, replies.put)
                self.scheduler.arrived(read.id, replies.get(timeout=HANGS))
        return self.ends[number].stats.cached_tokens


@pytest.mark.parametrize("name", ["gemma3", "gemma3 off", "qwen35", "mamba2"])
def test_what_is_on_disk_is_found_after_a_restart(
    small_engine: Callable[[str], LlamaEngine], tmp_path: Path, name: str
) -> None:
    engine = small_engine(name)
    system, message = text(80, 300), text(81, 60)
    prompt = system + message
    first = ServedWithDisk(engine, tmp_path)
    assert first.ask(prompt, borders=(300,)) == 0
    answer = first.answers[0]
    first.write()
    first.disk.close()
    later = {
        len(prompt) + ANSWER - 1: prompt + answer + text(82, 20),
        300: system + text(83, 30),
        len(prompt) - 1: prompt,
    }
    for length, further in later.items():
        again = ServedWithDisk(engine, tmp_path)
        assert again.ask(further) == length
        assert again.disk.use.failed_reads == 0
        assert again.disk.use.tokens == length
        again.disk.close()
        assert further != prompt or again.answers[0] == answer
        again.check()


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    num_cells=st.sampled_from([300, 400, 1024]),
    most_parked=st.sampled_from([0, 2**19, 2**24]),
    actions=st.lists(
        st.one_of(
            st.tuples(
                st.just("add"),
                st.integers(0, 1),  # which beginning
                st.integers(0, 140),  # how much of it
                st.integers(1, 90),  # and how much of its own
            ),
            st.tuples(st.just("steps"), st.integers(1, 12)),
            st.tuples(st.just("drop"), st.integers(0, 9)),
            st.tuples(st.just("on"), st.integers(0, 9), st.integers(1, 30)),
        ),
        max_size=14,
    ),
)
def test_answers_are_those_of_each_prompt_alone(
    engine: LlamaEngine,
    num_cells: int,
    most_parked: int,
    actions: list[tuple[str, *tuple[int, ...]]],
) -> None:
    served = Served(engine, num_cells=num_cells, most_parked=most_parked)
    for action, *numbers in actions:
        match action, numbers:
            case "add", (family, length, own):
                seed = 100 + len(served.prompts)
                served.add(text(family, 140)[:length] + text(seed, own), borders=(length // 2,))
            case "on", (number, more) if number in served.ends:
                before = served.prompts[number] + served.answers[number]
                served.add((before + text(200 + len(served.prompts), more))[: CONTEXT - ANSWER])
            case "drop", (number,) if number < len(served.prompts):
                served.drop(number)
            case "steps", (count,):
                for _ in range(count):
                    served.step()
    served.finish()
    served.check()
