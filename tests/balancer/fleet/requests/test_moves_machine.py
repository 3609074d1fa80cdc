"""Answers that move: few agents of one model that die, freeze, are drained and give back, and
clients whose answers are under way all the time.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from arriero.balancer.fleet.decisions import LinkId
from arriero.shared.inference import RequestId
from tests.balancer.fleet.builders import request
from tests.balancer.fleet.core.watched_fleet import Agent, Client, WatchedFleet

AGENTS = ("a", "b", "c")
AGENT_IDS = st.sampled_from(AGENTS)
FINGERPRINTS = st.sampled_from(["f", "f", "f", "f", "g", None, "text:s", "text:s"])
OF_ANSWERS = ("piece", "silent", "noticed", "prompt_read", "call_started", "called")
PRIORITIES = st.sampled_from([0, 0, -1, 1])
MAX_LIVE = 8


class MovesMachine(WatchedFleet):
    """Three agents with two slots each, which come back after they went."""

    @initialize(fingerprint=FINGERPRINTS)
    def start(self, fingerprint: str | None) -> None:
        self.begin(max_buffered=4)
        for id in AGENTS[:2]:
            self.join(Agent(id, 2, "m", fingerprint="f"))
        self.join(Agent(AGENTS[2], 2, "m", fingerprint=fingerprint))
        self.client_opens(2)
        self.answer_all(1)

    def link_of(self, id: str) -> LinkId | None:
        return next((link for link, agent in self.agents.items() if agent.id == id), None)

    # ---- clients

    @precondition(lambda self: len(self.live()) < MAX_LIVE)
    @rule(number=st.integers(1, 3), priority=PRIORITIES)
    def client_opens(self, number: int, priority: int = 0) -> None:
        for _ in range(number):
            id = RequestId(f"r{len(self.clients)}")
            self.clients[id] = Client("m", self.now)
            wanted = request("m", priority=priority)
            self.follow(self.fleet.request_arrived(id, wanted, self.now))
            self.judge_refusal(id)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), leaves=st.booleans())
    def client_leaves_or_cancels(self, data: st.DataObject, leaves: bool) -> None:
        self.follow(self.fleet.tick(self.now))
        id = data.draw(st.sampled_from(sorted(self.clients)))
        if leaves or id not in self.live():
            self.clients[id].is_closed = True
            self.follow(self.fleet.close(id, self.now))
        else:
            self.clients[id].is_cancelled = True
            self.follow(self.fleet.cancel([id], self.now))

    # ---- agents at work

    @rule(num_tokens=st.integers(1, 3))
    def agents_answer_all(self, num_tokens: int) -> None:
        self.answer_all(num_tokens)

    @rule(id=AGENT_IDS, data=st.data(), what=st.sampled_from(OF_ANSWERS))
    def agent_answers(self, id: str, data: st.DataObject, what: str) -> None:
        self.on_one(id, data, what)

    @rule(what=st.sampled_from(OF_ANSWERS))
    def agents_say_of_all(self, what: str) -> None:
        self.follow(self.fleet.tick(self.now))
        for link in sorted(self.agents):
            for id in self.running_on(link):
                self.answer(link, id, what)

    @rule(id=AGENT_IDS, data=st.data(), what=st.sampled_from(["ended", "busy", "closing"]))
    def agent_ends_one_or_gives_it_back(self, id: str, data: st.DataObject, what: str) -> None:
        self.on_one(id, data, what)

    def on_one(self, id: str, data: st.DataObject, what: str) -> None:
        self.follow(self.fleet.tick(self.now))
        link = self.link_of(id)
        if link is not None and self.agents[link].running:
            of = data.draw(st.sampled_from(self.agents[link].running))
            self.answer(link, of, what, data.draw(st.sampled_from("ab")))

    @precondition(lambda self: any(agent.stopping for agent in self.agents.values()))
    @rule()
    def agents_have_stopped(self) -> None:
        self.stop_what_was_told()

    # ---- agents go

    @rule(id=AGENT_IDS)
    def agent_dies(self, id: str) -> None:
        self.follow(self.fleet.tick(self.now))
        if (link := self.link_of(id)) is not None:
            self.goes(link)

    @rule(id=AGENT_IDS)
    def agent_freezes(self, id: str) -> None:
        self.time_goes_by_for(6, silent=(id,))

    @rule(id=AGENT_IDS)
    def agent_gives_all_back(self, id: str) -> None:
        self.follow(self.fleet.tick(self.now))
        if (link := self.link_of(id)) is not None:
            for request_id in self.running_on(link):
                self.answer(link, request_id, "closing")
                self.follow(self.fleet.tick(self.now))  # others may have to give way

    @precondition(lambda self: len(self.agents) < len(AGENTS))
    @rule(fingerprint=FINGERPRINTS)
    def agent_comes(self, fingerprint: str | None) -> None:
        here = {agent.id for agent in self.agents.values()}
        self.join(
            Agent(
                next(each for each in AGENTS if each not in here), 2, "m", fingerprint=fingerprint
            )
        )

    @rule(id=AGENT_IDS, fingerprint=FINGERPRINTS)
    def agent_dials_again(self, id: str, fingerprint: str | None) -> None:
        self.join(Agent(id, 2, "m", fingerprint=fingerprint))

    # ---- operators

    @rule(id=AGENT_IDS, within=st.sampled_from([None, 0.0, 0.0, 1.0]))
    def operator_drains(self, id: str, within: float | None) -> None:
        self.drain(id, within)

    @rule(id=AGENT_IDS, num_tokens=st.integers(0, 2))
    def agent_speaks_on_until_it_has_stopped(self, id: str, num_tokens: int) -> None:
        self.drain(id, 0.0)
        self.answer_all(num_tokens)
        self.stop_what_was_told()

    @precondition(lambda self: self.cordoned)
    @rule()
    def operator_resumes_all(self) -> None:
        for id in sorted(self.cordoned):
            self.resume(id)

    # ---- time

    @rule(seconds=st.sampled_from([1, 2]))
    def time_goes_by(self, seconds: int) -> None:
        self.time_goes_by_for(seconds)


TestMovesMachine = MovesMachine.TestCase
TestMovesMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
