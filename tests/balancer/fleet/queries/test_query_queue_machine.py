"""Queries, answers and agents in any order; every part is asked until it is answered."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.queries.query_queue import Hand, Part, QueryQueue
from arriero.shared.inference import RequestId

LINKS = st.sampled_from([LinkId(number) for number in range(3)])
MODELS = st.sampled_from(["llama", "bert"])
PER_AGENT = 2


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = QueryQueue(PER_AGENT)
        self.models: dict[LinkId, str | None] = {}
        self.queries: dict[RequestId, str | None] = {}
        self.pending: set[Part] = set()
        self.lifecycle: dict[Part, LinkId] = {}
        self.count = 0

    def take(self, hands: list[Hand]) -> None:
        for hand in hands:
            self.pending.remove(hand.part)
            self.lifecycle[hand.part] = hand.link
            wanted = self.queries[hand.part.query]
            assert self.models[hand.link] is not None
            assert wanted in (None, self.models[hand.link])

    @rule(model=st.none() | MODELS, num_parts=st.integers(1, 5))
    def opens(self, model: str | None, num_parts: int) -> None:
        self.count += 1
        id = RequestId(f"q{self.count}")
        self.queries[id] = model
        self.pending |= {Part(id, number) for number in range(num_parts)}
        self.take(self.queue.enqueue(id, model, num_parts))

    @rule(data=st.data())
    def answers(self, data: st.DataObject) -> None:
        if self.lifecycle:
            part = data.draw(st.sampled_from(sorted(self.lifecycle)))
            del self.lifecycle[part]
            self.take(self.queue.done(part))

    @rule(data=st.data())
    def would_not(self, data: st.DataObject) -> None:
        if self.lifecycle:
            part = data.draw(st.sampled_from(sorted(self.lifecycle)))
            self.models[self.lifecycle.pop(part)] = None
            self.pending.add(part)
            self.take(self.queue.came_back(part))

    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        if self.queries:
            ids = data.draw(st.sets(st.sampled_from(sorted(self.queries)), min_size=1))
            withdrawn, hands = self.queue.closed(ids)
            had = {part: link for part, link in self.lifecycle.items() if part.query in ids}
            assert {hand.part: hand.link for hand in withdrawn} == had
            for id in ids:
                del self.queries[id]
            self.pending = {part for part in self.pending if part.query not in ids}
            self.lifecycle = {
                part: link for part, link in self.lifecycle.items() if part.query not in ids
            }
            self.take(hands)

    @rule(link=LINKS, model=st.none() | MODELS)
    def agent_changes(self, link: LinkId, model: str | None) -> None:
        self.models[link] = model
        self.take(self.queue.agent_changed(link, model))

    @rule(old=MODELS, new=MODELS)
    def models_are_renamed(self, old: str, new: str) -> None:
        renamed = {id for id, model in self.queries.items() if model == old}
        ids, hands = self.queue.renamed({old: new})
        assert set(ids) == renamed
        self.queries |= dict.fromkeys(renamed, new)
        self.take(hands)

    @rule(link=LINKS)
    def agent_leaves(self, link: LinkId) -> None:
        self.models.pop(link, None)
        had = {part for part, holder in self.lifecycle.items() if holder == link}
        ids = self.queue.agent_left(link)
        assert set(ids) == {part.query for part in had}
        for part in had:
            del self.lifecycle[part]
        self.pending |= had
        self.take(self.queue.spread(ids))

    @invariant()
    def nothing_is_lost_and_nobody_waits_in_vain(self) -> None:
        self.queue.check_integrity()
        assert self.queue.num_pending == len(self.pending)
        assert self.queue.num_asked == len(self.lifecycle)
        for part, link in self.lifecycle.items():
            assert self.queue.holder(part) == link
        served = set(self.models.values()) - {None}
        for id, model in self.queries.items():
            assert self.queue.is_asked(id) == any(part.query == id for part in self.lifecycle)
            is_waiting = any(part.query == id for part in self.pending)
            is_served = bool(served) if model is None else model in served
            assert (id in self.queue.stranded()) == (is_waiting and not is_served)
        for link, model in self.models.items():
            num_asked = sum(holder == link for holder in self.lifecycle.values())
            assert num_asked <= PER_AGENT
            if model is not None and num_asked < PER_AGENT:
                assert all(self.queries[p.query] not in (None, model) for p in self.pending)


TestMachine = Machine.TestCase
TestMachine.settings = settings(stateful_step_count=30)
