"""Two listeners over one engine, doing whatever they like in any order; and mistakes of ours."""

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from arriero.agent.chat.output.transcript import Stops
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import SequenceEnd, SequenceOutput, SequenceStats
from arriero.agent.generation.active_requests import (
    Abandon,
    ActiveRequests,
    Decision,
    Drop,
    LogFailure,
    Prepare,
    ReadPrefix,
    Run,
    Save,
    SendItems,
)
from arriero.agent.generation.answers.prepared import Prepared
from arriero.agent.sequence_id import SequenceId
from arriero.shared.errors import EngineFailed, InvalidRequest
from arriero.shared.inference import GenerateRequest, Notice, RequestId
from arriero.shared.messages import Ended, Item, Noticed, Piece, PromptRead, Refused, Start
from tests.agent.generation.outputs import make_prepared, other
from tests.agent.stored import whole

STOP, BOOM = "!", "?"
TEXTS = ("a", "b", STOP, BOOM)
REASONS: list[Literal["stop", "length"] | EngineFailed | None] = [
    *(None, None, "stop", "length", EngineFailed("x"))
]
PREPARED = make_prepared(stop=Stops((STOP,)), notices=(Notice("prompt_cache", "torn"),))
BROKEN = make_prepared(stop=Stops((None,)))  # type: ignore[arg-type]
KEYS = ("k", "l")
NOT_SAVED = Notice("prompt_cache", "disk full")
SAVED = whole((1, 2), b"state")


def piece(token: int) -> bytes:
    if TEXTS[token] == BOOM:
        raise IndexError(token)
    return TEXTS[token].encode()


@dataclass
class Asked:
    """A request as its listener knows it."""

    name: RequestId
    key: str | None
    is_awaited: bool = True
    is_released: bool = False
    failed: bool = False
    tokens: list[int] = field(default_factory=list)
    text: str = ""


@dataclass(eq=False)
class Listener:
    """Checks what it hears."""

    asked: dict[SequenceId, Asked] = field(default_factory=dict)
    given: dict[SequenceId, list[int]] = field(default_factory=dict)

    def of(self, name: RequestId) -> Asked:
        [found] = [each for each in self.asked.values() if each.name == name and each.is_awaited]
        return found

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...]) -> None:
        assert items or released
        for item in items:
            self._hear(item, self.of(item.id))
        for id in released:
            asked = self.asked[id]
            assert not asked.is_released and not asked.is_awaited
            asked.is_released = True

    def _hear(self, item: Item, asked: Asked) -> None:
        match item:
            case Piece(text=text, tokens=tokens):
                asked.text += text
                asked.tokens += tokens
            case Ended(usage=usage, finish_reason=reason):
                asked.is_awaited = False
                assert usage.completion_tokens == len(asked.tokens)
                self._check_answer(asked, reason)
            case Refused(error=error):
                asked.is_awaited = False
                asked.failed = error.code == "internal_error"
            case _:
                assert isinstance(item, Noticed | PromptRead)

    def _check_answer(self, asked: Asked, reason: str) -> None:
        [id] = [id for id, each in self.asked.items() if each is asked]
        given = self.given.get(id, [])
        stop = TEXTS.index(STOP)
        taken = given[: given.index(stop) + 1] if stop in given else given
        assert asked.tokens == taken
        assert asked.text == "".join(TEXTS[token] for token in taken).removesuffix(STOP)
        assert reason == "stop" or stop not in taken


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.requests = ActiveRequests(piece)
        self.listeners = (Listener(), Listener())
        self.num_started = 0
        self.preparing: set[SequenceId] = set()
        self.running: set[SequenceId] = set()
        self.reading: set[SequenceId] = set()
        self.saving: set[SequenceId] = set()
        self.logged: list[RequestId] = []
        self.now = 0.0

    # ---- the shell

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self._do(decision)
        self.requests.check_integrity()

    def _do(self, decision: Decision) -> None:
        match decision:
            case SendItems(listener, items, released):
                listener.produced(items, released)
            case LogFailure(id, _):
                self.logged.append(id)
            case Prepare(id, _):
                self.preparing.add(id)
            case Abandon(id):
                self.preparing.remove(id)
            case Run(sequence):
                self.running.add(sequence.id)
            case Drop(id):
                self.running.remove(id)
            case ReadPrefix(id):
                assert id not in self.running | self.saving and self.asked(id).key
                self.reading.add(id)
            case Save(id, key, prompt):
                assert id not in self.running | self.saving
                assert (key, prompt) == (self.asked(id).key, SAVED)
                self.saving.add(id)

    def asked(self, id: SequenceId) -> Asked:
        [found] = [each.asked[id] for each in self.listeners if id in each.asked]
        return found

    def sequences(self) -> st.SearchStrategy[SequenceId]:
        return st.integers(1, max(self.num_started, 1)).map(SequenceId)

    # ---- what listeners want

    @rule(which=st.integers(0, 1), key=st.none() | st.sampled_from(KEYS), stream=st.booleans())
    def start(self, which: int, key: str | None, *, stream: bool) -> None:
        self.num_started += 1
        id, name = SequenceId(self.num_started), RequestId(f"r{self.num_started}")
        taken = {
            each.key
            for one in self.listeners
            for each in one.asked.values()
            if not each.is_released
        }
        asked = self.listeners[which].asked[id] = Asked(name, key)
        request = GenerateRequest(
            prompt="x", stream=stream, cache_key=key, save_cache=key is not None
        )
        self.carry_out(
            self.requests.start(id, Start(id=name, request=request), self.listeners[which])
        )
        assert asked.is_awaited == (key is None or key not in taken)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.num_started:
            id = data.draw(self.sequences())
            asked = self.asked(id)
            was_awaited = asked.is_awaited
            is_complete = id in self.reading | self.saving
            self.carry_out(self.requests.cancel(id))
            assert asked.is_awaited == (was_awaited and is_complete)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        if self.num_started:
            id = data.draw(self.sequences())
            self.carry_out(self.requests.fail(id, EngineFailed("x")))
            assert not self.asked(id).is_awaited

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        if self.num_started:
            id = data.draw(self.sequences())
            self.asked(id).is_awaited = False
            self.carry_out(self.requests.discard(id))

    # ---- what becomes of requests

    @rule(data=st.data(), outcome=st.sampled_from([PREPARED, PREPARED, InvalidRequest("no")]))
    def prepared(self, data: st.DataObject, outcome: Prepared | InvalidRequest) -> None:
        if self.num_started:
            id = data.draw(self.sequences())
            self.preparing.discard(id)
            if isinstance(outcome, Prepared):
                outcome = other(outcome, id=id)
            self.carry_out(self.requests.prepared(id, outcome))

    @rule(data=st.data())
    def prepared_but_nothing_can_be_made_of_it(self, data: st.DataObject) -> None:
        if self.preparing:
            id = data.draw(st.sampled_from(sorted(self.preparing)))
            self.preparing.remove(id)
            self.carry_out(self.requests.prepared(id, BROKEN))
            assert self.asked(id).failed
            assert self.logged.count(self.asked(id).name) == 1

    @rule(data=st.data(), seconds=st.sampled_from([0.01, 1.0]))
    def step(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        if not self.num_started:
            return
        known = st.sampled_from(sorted(self.running)) if self.running else self.sequences()
        ids = data.draw(st.lists(known | self.sequences(), unique=True, max_size=4))
        outputs = [self._output(data, id) for id in ids]
        ended = {output.id for output in outputs if output.end is not None}
        self.running -= ended  # before the core hears of it: it must not drop these
        broken = [
            output.id
            for output in outputs
            if TEXTS.index(BOOM) in output.tokens and self._is_read(output.id)
        ]
        self.carry_out(self.requests.stepped(outputs, self.now))
        for id in broken:
            assert self.asked(id).failed
            assert self.logged.count(self.asked(id).name) == 1

    def _is_read(self, id: SequenceId) -> bool:
        """Whether the answer takes tokens: it is prepared and not complete."""
        asked = self.asked(id)
        is_complete = id in self.reading | self.saving
        return asked.is_awaited and id not in self.preparing and not is_complete

    def _output(self, data: st.DataObject, id: SequenceId) -> SequenceOutput:
        tokens = data.draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3]), max_size=3))
        if TEXTS.index(BOOM) in tokens:  # what comes after it is never looked at
            tokens = [each for each in tokens if TEXTS[each] != STOP]
        reason = data.draw(st.sampled_from(REASONS))
        if self._is_read(id):
            for listener in self.listeners:
                listener.given.setdefault(id, []).extend(tokens)
        if reason is None:
            return SequenceOutput(id, tuple(tokens))
        stats = SequenceStats(
            prompt_tokens=2,
            cached_tokens=0,
            completion_tokens=len(tokens),
            prefill_tokens=2,
            prefill_seconds=0.1,
            decode_seconds=0.1,
        )
        return SequenceOutput(id, tuple(tokens), SequenceEnd(reason, stats))

    @rule(data=st.data(), prefix=st.sampled_from([SAVED, SAVED, None]))
    def a_prefix_is_read(self, data: st.DataObject, prefix: StoredPrompt | None) -> None:
        if self.reading:
            id = data.draw(st.sampled_from(sorted(self.reading)))
            self.reading.remove(id)
            was_awaited = self.asked(id).is_awaited
            self.carry_out(self.requests.read(id, prefix))
            assert (id in self.saving) == (was_awaited and prefix is not None)

    @rule(data=st.data(), failure=st.sampled_from([None, NOT_SAVED]))
    def a_save_is_done(self, data: st.DataObject, failure: Notice | None) -> None:
        if self.saving:
            id = data.draw(st.sampled_from(sorted(self.saving)))
            self.saving.remove(id)
            self.carry_out(self.requests.saved(id, failure))
            assert self.asked(id).is_released

    @rule(data=st.data())
    def a_decision_cannot_be_carried_out(self, data: st.DataObject) -> None:
        """A preparation or a save that could not even begin."""
        if begun := sorted(self.preparing | self.saving):
            id = data.draw(st.sampled_from(begun))
            self.preparing.discard(id)
            self.saving.discard(id)
            self.carry_out(self.requests.crashed(id, RuntimeError("x"), is_in_engine=False))
            assert self.asked(id).is_released

    @invariant()
    def what_was_not_released_is_somewhere(self) -> None:
        if not hasattr(self, "requests"):
            return
        held = [
            (each.is_awaited, id)
            for one in self.listeners
            for id, each in one.asked.items()
            if not each.is_released
        ]
        assert len(held) == len(self.requests)
        reading = {id for id in self.reading if self.asked(id).is_awaited}
        assert {id for _, id in held} == self.preparing | self.running | reading | self.saving
        assert all(is_awaited or id in self.saving for is_awaited, id in held)

    def teardown(self) -> None:
        if not hasattr(self, "requests"):
            return
        for listener in self.listeners:
            for id, asked in listener.asked.items():
                asked.is_awaited = False
                self.carry_out(self.requests.discard(id))
        assert not self.preparing and not self.running
        for id in sorted(self.saving):
            self.carry_out(self.requests.saved(id, None))
        assert len(self.requests) == 0


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=40)
