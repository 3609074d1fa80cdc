"""What the balancer believes of an agent's cache against the cache itself: any history of both.

An agent of two slots whose cache holds a few prompts, and a balancer that hears of it by messages
in their order. Once all of them have arrived, it believes nothing that is not there.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed
from arriero.agent.engine.kv_cache.memory import Memory
from arriero.agent.engine.kv_cache.stream_memory import StreamMemory
from arriero.agent.engine.kv_cache.unified_memory import UnifiedMemory
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies.cost import LeastCost
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.inference.prefix_chain import PrefixChain, chain_of

LINK = LinkId(1)
BLOCK = 64
"""Characters, and about as many tokens, of a part of a prompt: a key each."""


@dataclass(slots=True)
class Sent:
    """A request on its way to the agent, or in a slot there."""

    id: RequestId
    keys: list[int]
    chain: PrefixChain
    slot: int | None = None


def unified(*, can_share: bool) -> Memory:
    return UnifiedMemory(
        slots=2,
        holders=6,
        num_cells=12 * BLOCK,
        policy=LeastRecentlyUsed(),
        can_share=can_share,
        most_parked=4 * BLOCK,
    )


def streams() -> Memory:
    return StreamMemory(
        slots=2,
        holders=8,
        num_streams=4,
        num_cells=16 * BLOCK,
        policy=LeastRecentlyUsed(),
        most_parked=4 * BLOCK,
    )


class Evictions(RuleBasedStateMachine):
    """Prompts of up to five parts, of two kinds each: some begin alike."""

    @initialize(layout=st.sampled_from(["unified", "streams", "nothing is shared"]))
    def start(self, layout: str) -> None:
        self.memory = streams() if layout == "streams" else unified(can_share=layout == "unified")
        self.router = LeastCost()
        self.router.agent_is(LINK, "m", 1e9)
        self.on_their_way: deque[Sent] = deque()
        self.running: list[Sent] = []
        self.told: deque[Callable[[], object]] = deque()
        self.prefixes: dict[int, tuple[int, ...]] = {}
        self.num_sent = 0

    @rule(parts=st.lists(st.sampled_from("ab"), min_size=1, max_size=5))
    def sends(self, parts: list[str]) -> None:
        text = "".join(part * BLOCK for part in parts)
        chain = chain_of(GenerateRequest(prompt=text))
        self.num_sent += 1
        sent = Sent(RequestId(str(self.num_sent)), [ord(each) for each in text], chain)
        for end, key in zip(chain.ends, chain.keys, strict=True):
            self.prefixes[key] = tuple(sent.keys[:end])
        self.router.started(sent.id, LINK, chain)
        self.on_their_way.append(sent)

    @precondition(lambda self: self.on_their_way and len(self.running) < 2)
    @rule()
    def begins(self) -> None:
        one = self.on_their_way.popleft()
        one.slot = min({0, 1} - {each.slot for each in self.running})
        self.memory.allowance.renew(1e9)
        found = self.memory.find(one.keys, len(one.keys) - 1)
        if found.source is not None and self.memory.num_needed(found, len(one.keys)) <= (
            self.memory.room.num_available
        ):
            self.memory.fetch(found)
        marks = one.chain.positions(len(one.keys))
        self.memory.enter(one.slot, one.keys, found, marks=marks)
        self.running.append(one)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def computes(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.running))
        assert one.slot is not None
        left = len(one.keys) - self.memory.room.length(one.slot)
        count = min(left, data.draw(st.sampled_from([1, BLOCK, 5 * BLOCK])))
        self.memory.make_room(count)
        self.memory.grow(one.slot, count)
        if count and count == left:
            self.told.append(lambda: self.router.prompt_read(one.id, len(one.keys), 0))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_kept=st.booleans())
    def ends(self, data: st.DataObject, is_kept: bool) -> None:
        one = data.draw(st.sampled_from(self.running))
        assert one.slot is not None
        self.running.remove(one)
        self.memory.leave(one.slot, keeps=is_kept)
        self.told.append(lambda: self.router.ended(one.id, None))

    @precondition(lambda self: self.on_their_way)
    @rule()
    def is_refused(self) -> None:
        one = self.on_their_way.popleft()
        self.told.append(lambda: self.router.ended(one.id, None))

    @rule()
    def reports(self) -> None:
        while gone := self.memory.marks.take_gone(3):
            self.told.append(lambda gone=gone: self.router.evicted(LINK, gone.keys))  # type: ignore[misc]

    @rule()
    def arrives(self) -> None:
        while self.told:
            self.told.popleft()()

    @invariant()
    def what_is_marked_is_there(self) -> None:
        self.memory.check_integrity()
        self.router.check_integrity()
        running = [tuple(one.keys) for one in self.running]
        for key in self.memory.marks.counts:
            prefix = self.prefixes[key]
            found = self.memory.find(list(prefix), len(prefix))
            will_be = any(keys[: len(prefix)] == prefix for keys in running)
            assert found.length == len(prefix) or will_be

    @precondition(lambda self: not self.on_their_way)
    @invariant()
    def nothing_is_believed_that_is_not_there(self) -> None:
        self.reports()
        self.arrives()
        believed = {key for key in self.prefixes if self.router.believes(LINK, key)}
        assert believed <= self.memory.marks.counts.keys()

    def teardown(self) -> None:
        self.router.agent_left(LINK)
        assert self.router.num_beliefs == 0


TestEvictions = Evictions.TestCase
TestEvictions.settings = settings(stateful_step_count=30)
