"""Agents that answer nothing beside those that do: who gets what, and what becomes of requests."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from arriero.balancer.fleet.circuit_breaker import FIRST_SLOTS, PROBE_PAUSE, UNRESPONSIVE
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import Decision, LinkId, Moved, Send
from arriero.balancer.fleet.identities import REMEMBERED
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.requests.requests import LEAST_PATIENCE
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import AgentId, Rates, RequestId, Usage
from arriero.shared.messages import Cancel, Ended, Issue, Start
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import (
    codes,
    ended,
    hello,
    output,
    piece,
    refused,
    request,
    seen,
    sent,
)
from tests.balancer.fleet.core.scene import NO_HEARTBEATS, A, B, Scene
from tests.balancer.fleet.core.watched_fleet import Agent, Client, WatchedFleet

LIMITS = replace(NO_HEARTBEATS, first_token_timeout=120.0, buffered_request_timeout=200.0)
MUTE, GOOD = A, B
USED = Ended(
    id=RequestId("learnt"),
    finish_reason="stop",
    usage=Usage(prompt_tokens=8, completion_tokens=2),
    rates=Rates(prefill_tokens_per_second=1000.0, decode_tokens_per_second=100.0),
)


def links_of(decisions: list[Decision]) -> list[LinkId]:
    """Where requests are started, in order."""
    return [d.link for d in decisions if isinstance(d, Send) and isinstance(d.message, Start)]


def started_on(link: LinkId, decisions: list[Decision]) -> list[RequestId]:
    """What is started there, in order."""
    sends = [d for d in decisions if isinstance(d, Send) and d.link == link]
    return [d.message.id for d in sends if isinstance(d.message, Start)]


def good_answers(scene: Scene, decisions: list[Decision]) -> None:
    """What the good agent was given is answered."""
    for id in started_on(GOOD, decisions):
        assert codes(scene.say(GOOD, piece(id), ended(id))) == {id: "stop"}


def issues(scene: Scene, id: str) -> tuple[Issue, ...]:
    view = seen(scene.fleet, scene.now).agent(AgentId(id))
    assert view is not None
    return view.issues


def rows(first: str, num: int) -> list[str]:
    return [f"{first}{number}" for number in range(num)]


def scene_with_good(slots: int = 16, limits: Limits = LIMITS) -> Scene:
    """A good agent which has answered, so that its model's speed is known."""
    scene = Scene(limits)
    scene.join(GOOD, hello("good", slots=slots))
    for id in ("first", "second", "learnt"):
        scene.open(id)
        scene.say(GOOD, piece(id), replace(USED, id=RequestId(id)))
    return scene


def beside_a_mute_one(slots: int = 16) -> tuple[Scene, list[Decision]]:
    """16 requests come; an agent that claims 4096 slots answers none of those that it gets."""
    scene = scene_with_good(slots)
    scene.join(MUTE, hello("mute", slots=4096))
    return scene, scene.open(*rows("r", 16))


def test_a_new_agent_gets_few_requests_and_more_as_it_answers() -> None:
    scene = Scene(LIMITS)
    scene.join(A, hello("a1", slots=64))
    scene.join(B, hello("a2", slots=1))
    opened = scene.open("other", *rows("r", 64))
    assert (links_of(opened).count(A), links_of(opened).count(B)) == (FIRST_SLOTS, 1)
    running = started_on(A, opened)
    assert len(started_on(A, scene.say(A, *map(piece, running)))) == 60, "64 slots"


def test_an_agent_that_no_other_can_replace_gets_all_at_once() -> None:
    scene = Scene(LIMITS)
    scene.join(A, hello("a1", slots=64))
    assert len(sent(scene.open(*rows("r", 64)))) == 64
    scene.join(B, hello("a2", slots=64))
    assert len(links_of(scene.open(*rows("s", 64)))) == FIRST_SLOTS, "the other one, which is new"


def test_a_mute_agent_gets_few_of_the_requests_and_loses_all_of_them() -> None:
    scene, opened = beside_a_mute_one()
    assert links_of(opened).count(MUTE) <= FIRST_SLOTS
    waiting = 16 - len(links_of(opened))
    assert waiting == 0, "the good agent has room"
    mute = started_on(MUTE, opened)
    good_answers(scene, opened)
    decisions = scene.after(LEAST_PATIENCE)
    assert len(mute) > 2
    assert [m.id for m in sent(decisions) if isinstance(m, Cancel)] == mute
    assert links_of(decisions) == [GOOD] * len(mute)
    moved = [each for each in decisions if isinstance(each, Moved)]
    assert moved == [
        Moved(RequestId(id), "unanswered", Origin("host-mute", "llama")) for id in mute
    ]
    [issue] = issues(scene, "mute")
    assert issue.code == UNRESPONSIVE
    for id in mute:
        assert codes(scene.say(GOOD, piece(id), ended(id))) == {id: "stop"}
    assert scene.fleet.is_idle
    assert set(links_of(scene.open(*rows("next", 16)))) == {GOOD}


def test_a_probe_a_minute_tells_whether_it_answers_again() -> None:
    scene, opened = beside_a_mute_one()
    good_answers(scene, opened)
    good_answers(scene, scene.after(LEAST_PATIENCE))
    assert issues(scene, "mute")
    scene.after(PROBE_PAUSE - 1)
    early = scene.open("early")
    assert links_of(early) == [GOOD]
    good_answers(scene, early)
    assert scene.after(1.0) == []
    opened = scene.open(*rows("probe", 3))
    [probe] = started_on(MUTE, opened)
    assert issues(scene, "mute")
    scene.say(MUTE, piece(probe))
    assert issues(scene, "mute") == ()
    assert links_of(scene.open(*rows("more", 3))).count(MUTE) == 1, "two at once, one runs"


def test_an_agent_that_works_on_others_is_not_mute() -> None:
    scene = scene_with_good()
    scene.join(A, hello("busy", slots=4))
    opened = scene.open("1", "2", "3", "4", "5", "6")
    good_answers(scene, opened)
    running = started_on(A, opened)
    assert len(running) > 1
    for _ in range(8):
        scene.say(A, piece(running[0]))
        decisions = scene.after(4.0)
        assert A not in [d.link for d in decisions if isinstance(d, Send)]
    assert issues(scene, "busy") == ()


def test_an_engine_that_computes_is_not_mute_either() -> None:
    scene = scene_with_good()
    scene.join(A, hello("reads", slots=1))
    assert A in links_of(scene.open("1", "2"))
    for computed in range(1, 10):
        said = Statistics(num_running=1, computed_tokens=100 * computed)
        assert scene.fleet.agent_said(A, said, scene.now) == []
        assert sent(scene.after(4.0)) == []


def test_half_of_the_time_is_the_most_that_an_agent_may_take_before_another_has_a_try() -> None:
    scene = Scene(replace(LIMITS, first_token_timeout=20.0))
    scene.join(MUTE, hello("mute", slots=1))
    scene.open("r")
    scene.join(GOOD, hello("good", slots=1))
    assert sent(scene.after(9.9)) == [], "how fast the model is is not known"
    assert links_of(scene.after(0.2)) == [GOOD]
    assert codes(scene.after(9.8)) == {}
    assert codes(scene.after(0.2)) == {"r": "first_token_timeout"}, "20 s in all"


def test_without_another_agent_it_stays_until_its_time_is_over() -> None:
    scene = Scene(replace(LIMITS, first_token_timeout=20.0))
    scene.join(MUTE, hello("mute", slots=2))
    scene.open("1", "2", "3")
    assert sent(scene.after(19.0)) == []
    decisions = scene.after(1.0)
    assert codes(decisions) == {"1": "first_token_timeout", "2": "first_token_timeout"}
    assert links_of(decisions) == [MUTE], "no other can have it"
    decisions = scene.after(20.0)
    assert codes(decisions) == {"3": "first_token_timeout"}
    scene.open("4")
    assert issues(scene, "mute")
    scene.join(GOOD, hello("good", slots=2))
    assert links_of(scene.open("5", "6")) == [GOOD, GOOD]
    scene.open("7")
    assert seen(scene.fleet).totals().queue_depth == 1


def test_a_request_goes_back_to_an_agent_only_after_that_has_stopped() -> None:
    scene = Scene(replace(LIMITS, first_token_timeout=20.0))
    scene.join(MUTE, hello("slow", slots=4))
    scene.open("r")
    scene.join(GOOD, hello("good", slots=1))
    assert links_of(scene.after(10.0)) == [GOOD]
    assert sent(scene.leave(GOOD)) == [], "the slow one has not stopped it"
    assert links_of(scene.after(1.0)) == []
    assert scene.say(MUTE, piece("r")) == []
    assert scene.say(MUTE, ended("r", "cancelled")) == []
    assert links_of(scene.after(1.0)) == [MUTE]
    assert codes(scene.say(MUTE, piece("r"), ended("r"))) == {"r": "stop"}


def test_broken_answers_count_as_none() -> None:
    scene = scene_with_good(slots=1)
    scene.open("kept")
    scene.join(A, hello("broken", slots=64))
    for number in range(3):
        id = f"r{number}"
        scene.open(id)
        scene.say(A, refused(id, EngineFailed("broken")))
    [issue] = issues(scene, "broken")
    assert issue.code == UNRESPONSIVE
    assert links_of(scene.open("next")) == []


def test_an_agent_keeps_what_it_had_earned_when_it_dials_again() -> None:
    scene = scene_with_good(slots=1)
    scene.open("kept")
    scene.join(A, hello("a1", slots=64))
    scene.open(*rows("r", 64))
    scene.say(A, *[piece(f"r{number}") for number in range(4)])
    scene.leave(A, hung_up=True)
    back = scene.join(LinkId(3), hello("a1", slots=64))
    assert len(links_of(back)) == 60, "those that had begun had no fingerprint"


def test_another_that_says_its_id_has_earned_nothing() -> None:
    scene = scene_with_good(slots=1)
    scene.open("kept")
    scene.join(A, hello("a1", slots=64))
    scene.open(*rows("r", 64))
    scene.say(A, *[piece(f"r{number}") for number in range(4)])
    scene.leave(A, hung_up=True)
    scene.after(REMEMBERED)
    other = scene.join(LinkId(3), hello("a1", slots=64), is_same=False)
    assert len(links_of([*other, *scene.open(*rows("s", 64))])) == FIRST_SLOTS


# ---- any history

IN_TIME = {"first_token_timeout": 60.0, "buffered_request_timeout": 50.0, "request_timeout": 300.0}


class MuteMachine(WatchedFleet):
    """One agent answers all that it gets. Others are mute, begin an answer or steal ids."""

    @initialize(slots=st.integers(1, 6))
    def start(self, slots: int) -> None:
        self.begin(max_buffered=100)
        self.limits = replace(self.limits, **IN_TIME)
        self.fleet = Fleet(self.limits)
        self.join(Agent("good", slots, "m", fingerprint="f"))
        self.client_opens(1)
        [(link, id)] = self.on_good()
        self.answer(link, id, "piece")
        self.agents[link].ends(id)
        self.say(link, output(replace(USED, id=id)))

    @rule(number=st.integers(1, 5))
    def client_opens(self, number: int) -> None:
        for _ in range(number):
            id = RequestId(f"r{len(self.clients)}")
            self.clients[id] = Client("m", self.now)
            self.follow(self.fleet.request_arrived(id, request("m"), self.now))

    @rule()
    def good_agent_answers(self) -> None:
        self.follow(self.fleet.tick(self.now))
        while busy := [(link, id) for link, id in self.on_good()]:
            for link, id in busy:
                self.answer(link, id, "piece")
                self.answer(link, id, "ended")

    def on_good(self) -> list[tuple[LinkId, RequestId]]:
        links = [link for link, agent in self.agents.items() if agent.id == "good"]
        return [(link, id) for link in links for id in self.agents[link].running]

    @rule(id=st.sampled_from("xyz"), slots=st.integers(1, 4096))
    def mute_agent_joins(self, id: str, slots: int) -> None:
        """It stays: one that goes again and again makes its requests look like the cause."""
        if not any(agent.id == id for agent in self.agents.values()):
            self.join(Agent(id, slots, "m", fingerprint="f"))

    @rule(id=st.sampled_from(["good", *"xyz"]), takes_over=st.booleans())
    def another_says_its_id(self, id: str, takes_over: bool) -> None:
        self.steal(id, takes_over=takes_over)

    @rule()
    def mute_agents_have_stopped(self) -> None:
        self.stop_what_was_told()

    @rule(seconds=st.integers(1, 5))
    def time_goes_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time_goes_by_for(1)
            self.good_agent_answers()

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            self.time_goes_by(int(self.limits.first_token_timeout))
            assert not self.live()
            ends = {id: code for id, code in self.codes.items() if code != "stop"}
            assert not ends
        super().teardown()


TestMuteMachine = MuteMachine.TestCase
TestMuteMachine.settings = settings(stateful_step_count=20)


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
                self.follow(self.fleet.tick(self.now))  # others may be preempted

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
TestMovesMachine.settings = settings(stateful_step_count=40)
