"""Two balancers over one agent's slots, doing whatever they like in any order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.prompt_store.writers import Writers
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import SequenceEnd, SequenceId, SequenceOutput, SequenceStats
from arriero.agent.generation.prepared import Prepared
from arriero.agent.link.decisions import (
    Abandon,
    Close,
    Consult,
    Decision,
    Dismiss,
    Drop,
    Finish,
    GiveUp,
    MarkConnected,
    Prepare,
    Run,
    Save,
    Send,
)
from arriero.agent.link.slots import Slots
from arriero.shared.errors import EngineFailed, InvalidRequest
from arriero.shared.heartbeat import SECOND_LOOK
from arriero.shared.inference import GenerateRequest, Notice, RequestId
from arriero.shared.messages import (
    Ask,
    Busy,
    Cancel,
    Ended,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Item,
    Noticed,
    Output,
    Piece,
    Refused,
    Reply,
    Start,
    Statistics,
    Withdraw,
)
from arriero.shared.queries import Tokenize, Tokenized
from tests.agent.link.sessions import make_requests, make_session, numbers, welcome

NUM_SLOTS = 3
TIMEOUT = 3.0
DRAIN_TIMEOUT = 1.0
STOP = "!"
TEXTS = ("a", "b", STOP)
REASONS: list[Literal["stop", "length"] | EngineFailed | None] = [
    *(None, None, "stop", "length", EngineFailed("x"))
]
NAMES = st.sampled_from([RequestId(name) for name in "pqrstu"])
PREPARED = Prepared(
    prompt=(1, 2),
    sampling=Sampling(seed=1),
    max_tokens=None,
    stop=(STOP,),
    notices=(Notice("prompt_cache", "torn"),),
)
KEYS = ("k", "l")
NOT_SAVED = Notice("prompt_cache", "disk full")
SAVED = StoredPrompt((1, 2), b"state")
QUERY = Tokenize(text="x")
RESULT = Tokenized(tokens=(1,))


@dataclass
class QueryLifecycle:
    """A request as its balancer knows it: not answered yet. `key`: it is to be saved."""

    key: str | None = None
    sequence: SequenceId | None = None
    tokens: list[int] = field(default_factory=list)
    text: str = ""


class Balancer:
    """One balancer's view, and the shell of its session: checks every decision it carries out."""

    def __init__(
        self,
        slots: Slots,
        writers: Writers,
        sequence_ids: Iterator[SequenceId],
        query_numbers: Iterator[SequenceId],
        given: dict[SequenceId, list[int]],
    ) -> None:
        self.slots = slots
        self.given = given  # all tokens the engine ever yielded, by sequence
        self.session = make_session(
            make_requests(
                slots=slots,
                writers=writers,
                sequence_ids=sequence_ids,
                piece=lambda token: TEXTS[token].encode(),
            ),
            query_numbers=query_numbers,
        )
        self.open: dict[RequestId, QueryLifecycle] = {}
        self.preparing: set[SequenceId] = set()
        self.running: set[SequenceId] = set()
        self.finishing: set[SequenceId] = set()  # of those that run
        self.saving: dict[SequenceId, str] = {}
        self.orphans: dict[SequenceId, str] = {}  # of those, what nobody waits for any more
        self.asked: set[RequestId] = set()
        self.consulted: set[SequenceId] = set()
        self.is_connected = False
        self.drained_at: float | None = None
        self.heard_at = 0.0
        self.doubted_at: float | None = None
        self.unanswered: set[RequestId] = set()  # of the last connection that was lost

    def is_over(self, now: float) -> bool:
        """Whether its connection ends now, at the latest."""
        is_drained = self.drained_at is not None and now >= self.drained_at
        return is_drained or (self.doubted_at is not None and now >= self.doubted_at + SECOND_LOOK)

    def hears(self, now: float) -> None:
        self.heard_at = now
        self.doubted_at = None

    def is_looked_at(self, now: float) -> None:
        if self.doubted_at is None and now >= self.heard_at + TIMEOUT:
            self.doubted_at = now

    @property
    def keys(self) -> set[str]:
        """Those that its requests are going to save, or are saving."""
        asked = {asked.key for asked in self.open.values() if asked.sequence and asked.key}
        return asked | set(self.orphans.values())

    def keyed(self, id: SequenceId) -> str | None:
        """Under which key the sequence is to be saved."""
        return next((one.key for one in self.open.values() if one.sequence == id), None)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._do(decision)

    def _do(self, decision: Decision) -> None:
        match decision:
            case Send(message):
                assert self.is_connected
                if isinstance(message, Output):
                    assert message.items
                    for item in message.items:
                        self._hear(item)
                if isinstance(message, Reply):
                    self.asked.remove(message.id)
            case MarkConnected():
                assert self.session.is_live
            case Prepare(id, _):
                assert id not in self.preparing and id not in self.running
                self.preparing.add(id)
                [asked] = [asked for asked in self.open.values() if asked.sequence is None]
                asked.sequence = id
            case Abandon(id):
                self.preparing.remove(id)
            case Run(sequence):
                self.preparing.remove(sequence.id)
                self.running.add(sequence.id)
                assert sequence.save_as == self.keyed(sequence.id)
            case Finish(id):
                assert id in self.running - self.finishing and self.keyed(id)
                self.finishing.add(id)
            case Drop(id):
                self.running.remove(id)
                self.finishing.discard(id)
            case Save(id, key, prompt):
                assert id not in self.running and id not in self.saving
                assert (key, prompt) == (self.keyed(id), SAVED)
                self.saving[id] = key
            case Consult(id, query):
                assert query == QUERY and id not in self.consulted
                self.consulted.add(id)
            case Dismiss(id):
                self.consulted.remove(id)
            case Close() | GiveUp():
                self.lose()

    def _hear(self, item: Item) -> None:
        asked = self.open[item.id]  # nothing comes for what was not asked, or is over
        match item:
            case Piece(text=text, tokens=tokens):
                asked.text += text
                asked.tokens += tokens
            case Ended(usage=usage, finish_reason=reason):
                self._check_answer(asked, reason)
                assert usage.completion_tokens == len(asked.tokens)
                del self.open[item.id]
            case Refused():
                del self.open[item.id]
            case Noticed():
                assert asked.sequence is not None
            case Busy():
                assert asked == QueryLifecycle(asked.key)
                assert self.drained_at is not None or self.slots.num_free == 0
                del self.open[item.id]

    def _check_answer(self, asked: QueryLifecycle, reason: str) -> None:
        given = self.given.get(asked.sequence, []) if asked.sequence else []
        stop = TEXTS.index(STOP)
        taken = given[: given.index(stop) + 1] if stop in given else given
        assert asked.tokens == taken
        assert asked.text == "".join(TEXTS[token] for token in taken).removesuffix(STOP)
        assert reason == "stop" or stop not in taken

    def lose(self) -> None:
        """The connection is over, so what was asked on it will never be answered."""
        self.is_connected = False
        self.unanswered = set(self.open)
        self.orphans = dict(self.saving)
        self.open.clear()
        self.asked.clear()


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.slots = Slots(NUM_SLOTS)
        self.writers = Writers()
        ids, query_numbers = numbers(), numbers()
        self.given: dict[SequenceId, list[int]] = {}
        self.balancers = [
            Balancer(self.slots, self.writers, ids, query_numbers, self.given) for _ in range(2)
        ]
        self.past: list[SequenceId] = [SequenceId(999)]

    def say(self, which: int, message: FromBalancer) -> None:
        balancer = self.balancers[which]
        if balancer.is_connected:
            balancer.hears(self.now)
        balancer.carry_out(balancer.session.received(message, self.now))

    @rule()
    def connect(self) -> None:
        for which, balancer in enumerate(self.balancers):
            if not balancer.is_connected and balancer.drained_at is None:
                balancer.is_connected = True
                balancer.hears(self.now)
                balancer.carry_out(balancer.session.connected(self.now))
                self.say(which, welcome(timeout=TIMEOUT))

    @rule(which=st.integers(0, 1), name=NAMES, key=st.none() | st.sampled_from(KEYS))
    def start(self, which: int, name: RequestId, key: str | None) -> None:
        balancer = self.balancers[which]
        if balancer.is_connected and name not in balancer.open:
            taken = {key for each in self.balancers for key in each.keys}
            can_start = self.slots.num_free and balancer.drained_at is None
            request = GenerateRequest(prompt="x", cache_key=key, save_cache=key is not None)
            balancer.open[name] = QueryLifecycle(key)
            self.say(which, Start(id=name, request=request))
            assert (name in balancer.open) == bool(can_start and key not in taken)

    @rule(which=st.integers(0, 1), name=NAMES)
    def cancel(self, which: int, name: RequestId) -> None:
        balancer = self.balancers[which]
        asked = balancer.open.get(name, QueryLifecycle())
        is_complete = asked.sequence in balancer.finishing or asked.sequence in balancer.saving
        self.say(which, Cancel(id=name))
        assert (name in balancer.open) == is_complete

    @rule(which=st.integers(0, 1), name=NAMES)
    def ask(self, which: int, name: RequestId) -> None:
        balancer = self.balancers[which]
        if balancer.is_connected and name not in balancer.asked:
            balancer.asked.add(name)
            self.say(which, Ask(id=name, query=QUERY))
            assert (name in balancer.asked) == (balancer.drained_at is None)

    @rule(which=st.integers(0, 1), name=NAMES)
    def withdraw(self, which: int, name: RequestId) -> None:
        self.balancers[which].asked.discard(name)
        self.say(which, Withdraw(id=name))

    @rule(data=st.data(), which=st.integers(0, 1))
    def answer(self, data: st.DataObject, which: int) -> None:
        balancer = self.balancers[which]
        if balancer.consulted:
            id = data.draw(st.sampled_from(sorted(balancer.consulted)))
            balancer.consulted.remove(id)
            num_asked = len(balancer.asked)
            for each in self.balancers:
                each.carry_out(each.session.answered(id, RESULT, self.now))
            assert len(balancer.asked) == num_asked - 1 or not balancer.is_connected

    @rule(which=st.integers(0, 1), message=st.sampled_from([Heartbeat(), Goodbye()]))
    def nod(self, which: int, message: FromBalancer) -> None:
        self.say(which, message)

    @rule(data=st.data())
    def preparation_succeeds(self, data: st.DataObject) -> None:
        id = data.draw(self._tickets())
        for balancer in self.balancers:
            was_awaited = id in balancer.preparing
            balancer.carry_out(balancer.session.prepared(id, PREPARED, self.now))
            assert id in balancer.running or not was_awaited

    @rule(data=st.data())
    def preparation_fails(self, data: st.DataObject) -> None:
        id = data.draw(self._tickets())
        for balancer in self.balancers:
            balancer.preparing.discard(id)
            error = InvalidRequest("no")
            balancer.carry_out(balancer.session.preparation_failed(id, error, self.now))
        self.past.append(id)

    def _tickets(self) -> st.SearchStrategy[SequenceId]:
        preparing = [id for balancer in self.balancers for id in sorted(balancer.preparing)]
        return st.sampled_from(preparing or self.past) | st.sampled_from(self.past)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        running = [id for balancer in self.balancers for id in sorted(balancer.running)]
        ids = data.draw(st.lists(st.sampled_from(running + self.past[-3:]), unique=True))
        outputs = [self._output(data, id) for id in ids]
        ended = {output.id for output in outputs if output.end is not None}
        for balancer in self.balancers:
            balancer.running -= ended  # before its session hears of it: it must not drop these
            balancer.finishing -= ended
            balancer.carry_out(balancer.session.stepped(outputs, self.now))
        self.past += ended

    def _output(self, data: st.DataObject, id: SequenceId) -> SequenceOutput:
        tokens = data.draw(st.lists(st.integers(0, 2), max_size=3))
        reason = data.draw(st.sampled_from(REASONS))
        self.given.setdefault(id, []).extend(tokens)
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
        is_saved = isinstance(reason, str) and any(each.keyed(id) for each in self.balancers)
        saved = SAVED if is_saved else None
        return SequenceOutput(id, tuple(tokens), SequenceEnd(reason, stats, saved))

    @rule(data=st.data(), which=st.integers(0, 1))
    def a_save_is_done(self, data: st.DataObject, which: int) -> None:
        balancer = self.balancers[which]
        if balancer.saving:
            id = data.draw(st.sampled_from(sorted(balancer.saving)))
            self.save(balancer, id, data.draw(st.sampled_from([None, NOT_SAVED])))

    def save(self, balancer: Balancer, id: SequenceId, failure: Notice | None) -> None:
        num_open = len(balancer.open)
        del balancer.saving[id]
        is_orphan = balancer.orphans.pop(id, None) is not None
        balancer.carry_out(balancer.session.saved(id, failure, self.now))
        if balancer.is_connected:
            assert len(balancer.open) == num_open - (not is_orphan)

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for balancer in self.balancers:
            was_connected = balancer.is_connected
            deadline = balancer.session.next_deadline()
            if deadline is not None and deadline <= self.now:
                balancer.carry_out(balancer.session.tick(self.now))
            assert balancer.is_connected == (was_connected and not balancer.is_over(self.now))
            balancer.is_looked_at(self.now)
            deadline = balancer.session.next_deadline()
            assert deadline is None or deadline > self.now

    @rule()
    def tell_of_free_slots(self) -> None:
        for balancer in self.balancers:
            balancer.carry_out(balancer.session.slots_changed(self.now))

    @rule(num_running=st.integers(0, 2))
    def tell_what_the_engine_did(self, num_running: int) -> None:
        statistics = Statistics(num_running=num_running)
        for balancer in self.balancers:
            decisions = balancer.session.report(statistics, self.now)
            assert decisions == ([Send(statistics)] if balancer.is_connected else [])
            balancer.carry_out(decisions)

    @rule(
        which=st.integers(0, 1),
        what=st.sampled_from(["drain", "disconnect", "junk", "fail", "start again"]),
    )
    def trouble(self, which: int, what: str) -> None:
        balancer = self.balancers[which]
        session = balancer.session
        match what:
            case "drain" if balancer.drained_at is None:
                balancer.drained_at = self.now + DRAIN_TIMEOUT
                balancer.carry_out(session.drain(self.now, balancer.drained_at))
            case "disconnect":
                balancer.lose()
                balancer.carry_out(session.disconnected())
            case "junk":
                balancer.carry_out(session.read(b'{"type"', self.now))
                assert not balancer.is_connected
            case "fail":
                was_asked = set(balancer.open)
                balancer.carry_out(session.fail(EngineFailed("x"), self.now))
                assert not balancer.is_connected
                assert balancer.unanswered.isdisjoint(was_asked)
            case "start again" if balancer.open:
                name = next(iter(balancer.open))
                self.say(which, Start(id=name, request=GenerateRequest(prompt="x")))
                assert not balancer.is_connected

    @invariant()
    def slots_are_held_by_unanswered_requests_alone(self) -> None:
        if not hasattr(self, "balancers"):
            return
        held = sum(balancer.session.num_active for balancer in self.balancers)
        assert held == self.slots.num_busy <= NUM_SLOTS
        for balancer in self.balancers:
            balancer.session.check_integrity()
            assert balancer.session.num_active == len(balancer.open) + len(balancer.orphans)
            num_in_engine = len(balancer.preparing) + len(balancer.running)
            assert num_in_engine + len(balancer.saving) == balancer.session.num_active
            assert balancer.session.is_offline == (not balancer.is_connected)
            if balancer.drained_at is not None:
                assert balancer.open or balancer.asked or not balancer.is_connected
            assert len(balancer.consulted) == len(balancer.asked)

    def teardown(self) -> None:
        if not hasattr(self, "balancers"):
            return
        for balancer in self.balancers:
            balancer.lose()
            balancer.carry_out(balancer.session.disconnected())
            assert not balancer.preparing and not balancer.running and not balancer.consulted
            for id in sorted(balancer.saving):
                self.save(balancer, id, None)
        assert all(self.writers.claim(key) for key in KEYS)
        assert self.slots.num_busy == 0


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40)
