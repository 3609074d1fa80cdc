"""Two balancers over one agent's slots, doing whatever they like in any order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from arriero.agent.generation.port import QueryId
from arriero.agent.link.decisions import (
    AnswerQuery,
    CancelGeneration,
    Close,
    Decision,
    DiscardGeneration,
    FailGeneration,
    GiveUp,
    MarkConnected,
    Send,
    StartGeneration,
    WithdrawQuery,
)
from arriero.agent.link.requests import Slots
from arriero.agent.sequence_id import SequenceId
from arriero.shared.errors import EngineFailed, InternalError, to_wire
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Ask,
    Busy,
    Cancel,
    Ended,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Item,
    Output,
    Refused,
    Reply,
    Start,
    Withdraw,
)
from arriero.shared.queries import Tokenize, Tokenized
from arriero.shared.reports.statistics import Statistics
from tests.agent.link.sessions import (
    ENDED,
    make_requests,
    make_session,
    piece,
    welcome,
)

NUM_SLOTS = 3
TIMEOUT = 3.0
DRAIN_TIMEOUT = 1.0
NAMES = st.sampled_from([RequestId(name) for name in "pqrstu"])
QUERY = Tokenize(text="x")
RESULT = Tokenized(tokens=(1,))


@dataclass
class Generated:
    """One request as the generation knows it."""

    name: RequestId
    is_complete: bool = False
    """Its end waits for a save."""
    is_heard: bool = True
    """Whether it has items to give: neither ended nor discarded."""


class Balancer:
    """One balancer's view, and the shell of its session: checks every decision it carries out."""

    def __init__(self, slots: Slots, numbers: Iterator[int], query_numbers: Iterator[int]) -> None:
        self.slots = slots
        self.session = make_session(
            make_requests(slots=slots, numbers=numbers), query_numbers=query_numbers
        )
        self.now = 0.0
        self.open: dict[RequestId, str] = {}  # what it heard of each
        self.generated: dict[SequenceId, Generated] = {}
        self.asked: set[RequestId] = set()
        self.queries: set[QueryId] = set()
        self.is_connected = False
        self.drained_at: float | None = None
        self.heard_at = 0.0
        self.doubted_at: float | None = None

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
            case StartGeneration(id, start):
                assert id not in self.generated
                self.generated[id] = Generated(start.id)
            case CancelGeneration(id):
                if not self.generated[id].is_complete:
                    self.end(id)
            case FailGeneration(id, error):
                self.fail(id, error)
            case DiscardGeneration(id):
                self.discard(id)
            case AnswerQuery(query_id, query):
                assert query == QUERY and query_id not in self.queries
                self.queries.add(query_id)
            case WithdrawQuery(query_id):
                self.queries.remove(query_id)
            case Close() | GiveUp():
                self.lose()

    def _hear(self, item: Item) -> None:
        heard = self.open[item.id]  # nothing comes for what was not asked, or is over
        match item:
            case Ended() | Refused():
                del self.open[item.id]
            case Busy():
                assert not heard
                assert self.drained_at is not None or self.slots.num_free == 0
                del self.open[item.id]
            case _:
                self.open[item.id] += "x"

    def lose(self) -> None:
        """The connection is over, so what was asked on it will never be answered."""
        self.is_connected = False
        self.open.clear()
        self.asked.clear()

    # ---- the generation

    def produce(self, items: tuple[Item, ...], *released: SequenceId) -> None:
        for id in released:
            del self.generated[id]
        self.carry_out(self.session.produced(items, released, self.now))

    def end(self, id: SequenceId, error: InternalError | EngineFailed | None = None) -> None:
        name = self.generated[id].name
        refused = Refused(id=name, error=to_wire(error)) if error else None
        self.produce((refused or replace(ENDED, id=name),), id)

    def fail(self, id: SequenceId, error: object) -> None:
        generated = self.generated[id]
        assert generated.is_heard
        if generated.is_complete:  # its save goes on
            generated.is_heard = False
            self.produce(
                (
                    Ended(
                        id=generated.name,
                        finish_reason="stop",
                        usage=ENDED.usage,
                        rates=ENDED.rates,
                    ),
                )
            )
        else:
            self.end(id, EngineFailed(str(error)))

    def discard(self, id: SequenceId) -> None:
        generated = self.generated[id]
        assert generated.is_heard
        generated.is_heard = False
        if not generated.is_complete:
            self.produce((), id)


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.slots = Slots(NUM_SLOTS)
        numbers, query_numbers = count(1), count(1)
        self.balancers = [Balancer(self.slots, numbers, query_numbers) for _ in range(2)]

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

    @rule(which=st.integers(0, 1), name=NAMES)
    def start(self, which: int, name: RequestId) -> None:
        balancer = self.balancers[which]
        if balancer.is_connected and name not in balancer.open:
            can_start = self.slots.num_free and balancer.drained_at is None
            balancer.open[name] = ""
            self.say(which, Start(id=name, request=GenerateRequest(prompt="x")))
            assert (name in balancer.open) == bool(can_start)

    @rule(which=st.integers(0, 1), name=NAMES)
    def cancel(self, which: int, name: RequestId) -> None:
        balancer = self.balancers[which]
        is_complete = any(
            each.name == name and each.is_complete and each.is_heard
            for each in balancer.generated.values()
        )
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
        if balancer.queries:
            id = data.draw(st.sampled_from(sorted(balancer.queries)))
            balancer.queries.remove(id)
            num_asked = len(balancer.asked)
            for each in self.balancers:
                each.carry_out(each.session.answered(id, RESULT, self.now))
            assert len(balancer.asked) == num_asked - 1 or not balancer.is_connected

    @rule(which=st.integers(0, 1), message=st.sampled_from([Heartbeat(), Goodbye()]))
    def nod(self, which: int, message: FromBalancer) -> None:
        self.say(which, message)

    @rule(data=st.data(), which=st.integers(0, 1))
    def step(self, data: st.DataObject, which: int) -> None:
        """Pieces of some requests, and the ends of some; of one a mistake of ours."""
        balancer = self.balancers[which]
        heard = [id for id, each in balancer.generated.items() if each.is_heard]
        running = [id for id in heard if not balancer.generated[id].is_complete]
        if not running:
            return
        stepping = data.draw(st.lists(st.sampled_from(running), unique=True, min_size=1))
        balancer.produce(tuple(piece(balancer.generated[id].name, "x") for id in stepping))
        ended = stepping[0]
        match data.draw(st.sampled_from(["end", "complete", "break", "go on"])):
            case "end":
                balancer.end(ended)
            case "complete":
                balancer.generated[ended].is_complete = True
            case "break":
                balancer.end(ended, InternalError("a mistake of ours"))

    @rule(data=st.data(), which=st.integers(0, 1))
    def what_was_produced_cannot_be_sent(self, data: st.DataObject, which: int) -> None:
        balancer = self.balancers[which]
        if balancer.open:
            name = data.draw(st.sampled_from(sorted(balancer.open)))
            del balancer.open[name]  # the shell has told it
            balancer.carry_out(balancer.session.unsendable(name))

    @rule(data=st.data(), which=st.integers(0, 1))
    def a_save_is_done(self, data: st.DataObject, which: int) -> None:
        balancer = self.balancers[which]
        if saving := [id for id, each in balancer.generated.items() if each.is_complete]:
            self.save(balancer, data.draw(st.sampled_from(saving)))

    def save(self, balancer: Balancer, id: SequenceId) -> None:
        num_open = len(balancer.open)
        was_connected = balancer.is_connected
        if balancer.generated[id].is_heard:
            balancer.end(id)
            assert len(balancer.open) == num_open - 1 or not was_connected
        else:
            balancer.produce((), id)
            assert len(balancer.open) == num_open

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for balancer in self.balancers:
            balancer.now = self.now
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
        what=st.sampled_from(["drain", "disconnect", "junk", "engine stopped", "start again"]),
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
            case "engine stopped" if balancer.is_connected:
                balancer.drained_at = self.now
                balancer.carry_out(session.engine_stopped("x"))
                assert not balancer.is_connected
            case "start again" if balancer.open:
                name = next(iter(balancer.open))
                self.say(which, Start(id=name, request=GenerateRequest(prompt="x")))
                assert not balancer.is_connected

    @invariant()
    def slots_are_held_until_they_are_released(self) -> None:
        if not hasattr(self, "balancers"):
            return
        held = sum(balancer.session.num_active for balancer in self.balancers)
        assert held == self.slots.num_busy <= NUM_SLOTS
        for balancer in self.balancers:
            balancer.session.check_integrity()
            assert balancer.session.num_active == len(balancer.generated)
            heard = [each for each in balancer.generated.values() if each.is_heard]
            assert sorted(each.name for each in heard) == sorted(balancer.open)
            assert balancer.session.is_offline == (not balancer.is_connected)
            if balancer.drained_at is not None:
                assert balancer.open or balancer.asked or not balancer.is_connected
            assert len(balancer.queries) == len(balancer.asked)

    def teardown(self) -> None:
        if not hasattr(self, "balancers"):
            return
        for balancer in self.balancers:
            balancer.lose()
            balancer.carry_out(balancer.session.disconnected())
            assert not balancer.queries
            for id in list(balancer.generated):
                self.save(balancer, id)
        assert self.slots.num_busy == 0


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=40)
