"""What the end of one request means for the others."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.change_log import ChangeLog
from arriero.balancer.fleet.deadlines import earliest
from arriero.balancer.fleet.decisions import (
    Decision,
    DeliverTokens,
    Finish,
    LinkId,
    Moved,
    Refuse,
    Send,
)
from arriero.balancer.fleet.lifecycle import Lives, NotServed
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.registry import Registry
from arriero.balancer.fleet.requests.eligibility import UncommonNeeds
from arriero.balancer.fleet.requests.preemption import FIRST_RUN
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.requests.requests import (
    LEAST_PATIENCE,
    Requests,
    loss_of,
    offer_of,
    refuse,
)
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed, QueueFull, RequestError, ShuttingDown
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    RequestId,
    Token,
)
from arriero.shared.messages import Cancel, Hello, Start
from arriero.shared.reports.model_info import Upstream
from arriero.shared.reports.statistics import Cells, Statistics
from tests.balancer.fleet.builders import codes, ended, hello, piece, request, seen, sent
from tests.balancer.fleet.core.scene import NO_HEARTBEATS, A, Scene, cancel, with_agent

LINK = LinkId(1)


class Lone(Requests):
    """Requests without queries beside them."""

    def __init__(self, limits: Limits, registry: Registry, changes: ChangeLog) -> None:
        self.lives = Lives(changes)
        super().__init__(limits, registry, changes, self.lives)

    def get(self, id: RequestId) -> Request:
        found = self.lives.get(id)
        assert isinstance(found, Request)
        return found

    @property
    def all(self) -> list[Request]:
        return [self.get(each.id) for each in self.lives]

    def next_deadline(self) -> float | None:
        return earliest(super().next_deadline(), self.lives.next_deadline())

    def tick(self, now: float) -> list[Decision]:
        due = [each for each in self.lives.due(now) if isinstance(each, Request)]
        return self.due(due, now, unknown)


def requests_with_agent(slots: int = 1) -> tuple[Lone, Registry]:
    changes = ChangeLog()
    registry = Registry(Limits(), changes)
    requests = Lone(Limits(), registry, changes)
    requests.agent_joined(registry.joined(LINK, hello(slots=slots), 0.0), 0.0)
    return requests, registry


def unknown(_model: str | None) -> NotServed:
    return NotServed("no agent is connected")


def start(id: str) -> Start:
    return Start(id=RequestId(id), request=request())


def test_the_next_starts_right_after_the_end_is_told() -> None:
    requests, _ = requests_with_agent()
    assert sent(requests.admit(RequestId("1"), request(), ANONYMOUS, 0.0)) == [start("1")]
    assert requests.admit(RequestId("2"), request(), ANONYMOUS, 0.0) == []
    first = requests.get(RequestId("1"))
    decisions = requests.fail(first, EngineFailed("broken"), 1.0)
    assert codes(decisions) == {"1": "engine_failed"}
    assert sent(decisions) == [start("2")]
    requests.check_integrity()


def test_those_that_wait_time_out_before_a_slot_of_the_same_moment_is_theirs() -> None:
    limits = Limits(buffered_request_timeout=5.0, first_token_timeout=5.0)
    changes = ChangeLog()
    registry = Registry(limits, changes)
    requests = Lone(limits, registry, changes)
    requests.agent_joined(registry.joined(LINK, hello(slots=1), 0.0), 0.0)
    for id in ("1", "2"):
        requests.admit(RequestId(id), request(), ANONYMOUS, 0.0)
    decisions = requests.tick(5.0)
    assert codes(decisions) == {"1": "first_token_timeout", "2": "queue_timeout"}
    assert sent(decisions) == [Cancel(id=RequestId("1"))]


def test_tokens_of_one_piece_share_the_time_since_the_piece_before() -> None:
    requests, _ = requests_with_agent()
    requests.admit(RequestId("1"), request(), ANONYMOUS, 0.0)
    one = requests.get(RequestId("1"))
    steps = {1.0: (7,), 1.5: (8, 9), 2.5: ()}
    told = [
        requests.gained([(one, Token("x", "content", ids))], at)[0] for at, ids in steps.items()
    ]
    assert [each.gaps for each in told] == [(), (0.25, 0.25), (1.0,)]


LONG = GenerateRequest(prompt="A conversation that was long. " * 400)
OTHER = LinkId(2)


def requests_with_one_warm() -> Lone:
    """The one slot of `LINK` is taken by a request with the prefix; `OTHER` is idle."""
    requests, registry = requests_with_agent()
    registry[LINK].statistics = Statistics(cells=Cells(total=100_000))
    requests.measured(registry[LINK])
    requests.admit(RequestId("1"), LONG, ANONYMOUS, 0.0)
    first = requests.get(RequestId("1"))
    requests.gained([(first, Token("Once"))], 0.0)
    assert requests.tick(LEAST_PATIENCE) == [], "its answer has begun"
    requests.agent_joined(registry.joined(OTHER, hello("a2", slots=1), 0.0), 0.0)
    return requests


def test_who_waits_for_one_agent_takes_another_when_that_has_cost_enough() -> None:
    requests = requests_with_one_warm()
    assert requests.admit(RequestId("2"), LONG, ANONYMOUS, 0.0) == []
    until = requests.next_deadline()
    assert until is not None
    assert 0 < until <= Limits().buffered_request_timeout / 2
    assert requests.tick(until - 0.01) == []
    requests.check_integrity()
    assert requests.tick(until) == [Send(OTHER, Start(id=RequestId("2"), request=LONG))]
    requests.check_integrity()


def test_who_waited_for_one_agent_and_got_it_waits_no_more() -> None:
    requests = requests_with_one_warm()
    requests.admit(RequestId("2"), LONG, ANONYMOUS, 0.0)
    until = requests.next_deadline()
    first = requests.get(RequestId("1"))
    [start] = sent(requests.done(first, ended("1"), 0.5))
    assert start == Start(id=RequestId("2"), request=LONG)
    assert until is not None
    assert requests.tick(until) == []
    requests.check_integrity()


def test_by_load_nobody_waits_for_one_agent() -> None:
    limits = Limits(routing="load")
    changes = ChangeLog()
    registry = Registry(limits, changes)
    requests = Lone(limits, registry, changes)
    for link in (LINK, OTHER):
        requests.agent_joined(registry.joined(link, hello(f"a{link}", slots=1), 0.0), 0.0)
    for id in ("1", "2"):
        assert sent(requests.admit(RequestId(id), LONG, ANONYMOUS, 0.0))
    assert [each.id for each in requests.dispatch.running_on(OTHER)] == ["2"]


# ---- classes, shares, deadlines and preemption, in the composed core

ALICE, BOB = Caller("alice"), Caller("bob")


def opens(
    scene: Scene,
    id: str,
    *,
    caller: Caller = ALICE,
    priority: int = 0,
    deadline_ms: int | None = None,
) -> list[Decision]:
    wanted = request(priority=priority, deadline_ms=deadline_ms)
    decisions = scene.fleet.request_arrived(RequestId(id), wanted, scene.now, caller=caller)
    return scene._checked(decisions)


def started(decisions: list[Decision]) -> list[str]:
    return [message.id for message in sent(decisions) if isinstance(message, Start)]


def refusal(decisions: list[Decision]) -> RequestError | None:
    return next((each.error for each in decisions if isinstance(each, Refuse)), None)


def with_batch() -> Scene:
    """One slot, in which a batch request streams that could move; it began just now."""
    scene = with_agent(slots=1, fingerprint="f")
    opens(scene, "batch", priority=-1)
    scene.say(A, piece("batch"))
    return scene


def test_batch_gives_way_and_goes_on_where_it_stopped() -> None:
    scene = with_batch()
    assert sent(opens(scene, "chat", priority=1)) == []
    assert sent(scene.after(FIRST_RUN / 2)) == [], "it may run for a while"
    assert sent(scene.after(FIRST_RUN / 2)) == [cancel("batch")]
    assert scene.fleet.next_deadline() != scene.now
    decisions = scene.say(A, ended("batch", "cancelled"))
    assert started(decisions) == ["chat"]
    assert [each.reason for each in decisions if isinstance(each, Moved)] == ["gave_way"]
    [start] = sent(scene.say(A, ended("chat")))
    assert isinstance(start, Start)
    assert start.continuation == Continuation.after([0], num_characters=4)
    assert codes(scene.say(A, ended("batch"))) == {"batch": "stop"}


def preempted() -> Scene:
    """The batch request was told to stop, since another waits."""
    scene = with_batch()
    scene.after(FIRST_RUN)
    assert sent(opens(scene, "chat", priority=1)) + sent(scene.after(0)) == [cancel("batch")]
    return scene


def test_batch_goes_on_after_all_that_came_until_it_stopped() -> None:
    scene = preempted()
    (told,) = scene.say(A, piece("batch", " in ", num_tokens=2))
    assert isinstance(told, DeliverTokens)
    assert started(scene.say(A, ended("batch", "cancelled"))) == ["chat"]
    [start] = sent(scene.say(A, ended("chat")))
    assert isinstance(start, Start)
    assert start.continuation == Continuation.after([0, 0, 1], num_characters=8)


def test_batch_with_which_none_can_go_on_after_all_ends() -> None:
    scene = preempted()
    scene.say(A, replace(piece("batch"), tokens=(2**32,)))  # an id that no vocabulary has
    decisions = scene.say(A, ended("batch", "cancelled"))
    assert codes(decisions) == {"batch": "agent_lost"}
    assert started(decisions) == ["chat"]


def test_batch_that_is_complete_before_it_stops_ends() -> None:
    scene = preempted()
    decisions = scene.say(A, piece("batch", " well"), ended("batch", "stop"))
    assert codes(decisions) == {"batch": "stop"}
    assert started(decisions) == ["chat"]


def test_default_requests_are_given_way_as_well_and_batch_is_not() -> None:
    scene = with_batch()
    opens(scene, "more", priority=-1)
    assert sent(scene.after(2 * FIRST_RUN)) == []
    assert sent(opens(scene, "chat")) + sent(scene.after(0)) == [cancel("batch")]


def test_who_gave_way_runs_longer_before_it_does_so_again() -> None:
    scene = with_batch()
    scene.after(FIRST_RUN)
    opens(scene, "chat", priority=1)
    scene.after(0)
    scene.say(A, ended("batch", "cancelled"))
    assert started(scene.say(A, ended("chat"))) == ["batch"]
    opens(scene, "again", priority=1)
    assert sent(scene.after(FIRST_RUN * 1.5)) == []
    assert sent(scene.after(FIRST_RUN * 0.5)) == [cancel("batch")]


def test_who_gave_way_waits_as_long_as_it_takes() -> None:
    scene = with_batch()
    scene.after(FIRST_RUN)
    opens(scene, "chat", priority=1)
    scene.after(0)
    scene.say(A, ended("batch", "cancelled"))
    for _ in range(8):
        scene.say(A, piece("chat"))
        scene.after(5.0)
    assert seen(scene.fleet, scene.now).waiting(RequestId("batch")) is not None
    assert started(scene.say(A, ended("chat"))) == ["batch"]


def test_what_cannot_go_on_elsewhere_keeps_its_slot() -> None:
    scene = with_agent(slots=1)
    opens(scene, "batch", priority=-1)
    scene.say(A, piece("batch"))
    opens(scene, "chat", priority=1)
    assert sent(scene.after(2 * FIRST_RUN)) == []
    assert started(scene.say(A, ended("batch"))) == ["chat"]


def test_if_nobody_needs_the_slot_any_more_the_batch_request_gets_it_back() -> None:
    scene = with_batch()
    opens(scene, "chat", priority=1)
    scene.after(FIRST_RUN)
    scene.close("chat")
    assert started(scene.say(A, ended("batch", "cancelled"))) == ["batch"]


def test_callers_take_turns() -> None:
    scene = with_agent(slots=1)
    for id in ("1", "2", "3", "4"):
        opens(scene, id)
    opens(scene, "b", caller=BOB)
    assert [started(scene.say(A, ended(id))) for id in ("1", "b")] == [["b"], ["2"]]


def test_of_a_full_queue_the_newest_of_who_has_most_goes() -> None:
    scene = with_agent(slots=1, limits=replace(NO_HEARTBEATS, max_buffered_requests=3))
    for id in ("runs", "1", "2", "3"):
        assert refusal(opens(scene, id)) is None
    assert codes(opens(scene, "b", caller=BOB)) == {"3": "queue_full"}
    assert refusal(opens(scene, "4")) is not None
    assert seen(scene.fleet, scene.now).request(RequestId("b")) is not None


def test_a_deadline_ends_a_request_wherever_it_is() -> None:
    scene = with_agent(slots=1)
    opens(scene, "runs", deadline_ms=5000)
    opens(scene, "waits", deadline_ms=2000)
    assert codes(scene.after(2.0)) == {"waits": "deadline_exceeded"}
    decisions = scene.after(3.0)
    assert codes(decisions) == {"runs": "deadline_exceeded"}
    assert sent(decisions) == [cancel("runs")]


def after_endings(scene: Scene, num: int, seconds: float) -> None:
    for number in range(num):
        opens(scene, f"before{number}")
        scene.after(seconds)
        scene.say(A, ended(f"before{number}"))


def test_what_cannot_begin_before_its_deadline_is_refused_at_once() -> None:
    scene = with_agent(slots=1)
    after_endings(scene, 3, 4.0)
    opens(scene, "runs")
    error = refusal(opens(scene, "late", deadline_ms=3000))
    assert error is not None
    assert (error.code, error.field, error.retry_after) == ("queue_full", "deadline_ms", 4.0)
    assert refusal(opens(scene, "soon enough", deadline_ms=5000)) is None


def test_without_experience_nobody_is_refused_for_a_deadline() -> None:
    scene = with_agent(slots=1)
    opens(scene, "runs")
    assert refusal(opens(scene, "late", deadline_ms=1)) is None


def test_what_would_wait_in_vain_is_refused_at_once() -> None:
    limits = replace(NO_HEARTBEATS, buffered_request_timeout=5.0)
    scene = with_agent(slots=1, limits=limits)
    after_endings(scene, 10, 8.0)
    opens(scene, "runs")
    assert refusal(opens(scene, "first")) is None
    error = refusal(opens(scene, "second"))
    assert error is not None
    assert (error.code, error.message) == (
        "queue_full",
        "at place 2 in the queue a slot would be free in about 16 s; requests may wait at most 5 s",
    )
    assert refusal(opens(scene, "another", caller=BOB)) is None, "its place is the first"


def test_a_slot_that_batch_gives_up_is_soon_enough() -> None:
    scene = with_agent(slots=1, fingerprint="f")
    after_endings(scene, 3, 4.0)
    opens(scene, "batch", priority=-1)
    assert refusal(opens(scene, "chat", priority=1, deadline_ms=3000)) is None


def test_totals_tell_classes_and_callers() -> None:
    scene = with_agent(slots=1)
    for number, priority in enumerate((0, 0, 1, -1)):
        opens(scene, str(number), priority=priority)
    totals = seen(scene.fleet).totals()
    assert totals.waiting_by_class == {"batch": 1, "default": 1, "interactive": 1}
    assert totals.callers_waiting == 1
    assert not any(isinstance(each, Finish) for each in scene.after(0))


SCORED = GenerateRequest(prompt="a", model="llama", logprobs=True)
FORWARDING = Upstream(kind="ollama", address="h:1", abilities=("messages", "prompt"))


def forwarding(id: str, *, slots: int = 1) -> Hello:
    """The hello of an agent whose upstream lacks most."""
    said = hello(id, slots=slots)
    assert said.model is not None
    return replace(said, model=replace(said.model, upstream=FORWARDING))


def test_what_an_agent_cannot_serve_waits_for_one_that_can() -> None:
    requests, registry = requests_with_agent()
    requests.agent_joined(registry.joined(OTHER, forwarding("a2", slots=3), 0.0), 0.0)
    scored = [requests.admit(RequestId(id), SCORED, ANONYMOUS, 0.0) for id in ("1", "2")]
    assert [links_of(each) for each in scored] == [[LINK], []]
    plain = requests.admit(RequestId("3"), request("llama"), ANONYMOUS, 0.0)
    assert links_of(plain) == [OTHER]
    first = requests.get(RequestId("1"))
    assert links_of(requests.fail(first, EngineFailed("broken"), 1.0)) == [LINK]
    requests.check_integrity()


def test_pictures_wait_for_an_agent_that_reads_them_and_texts_do_not() -> None:
    requests, registry = requests_with_agent()  # without a projector
    seeing = hello("a2", slots=1)
    assert seeing.model is not None
    seeing = replace(seeing, model=replace(seeing.model, tasks=("generate", "vision")))
    requests.agent_joined(registry.joined(OTHER, seeing, 0.0), 0.0)
    url = ImageUrl(url="data:image/png;base64,AA==")
    said = ChatMessage(role="user", content=(ImagePart(type="image_url", image_url=url),))
    seen = GenerateRequest(messages=(said,), model="llama")
    first = [requests.admit(RequestId(id), seen, ANONYMOUS, 0.0) for id in ("1", "2")]
    assert [links_of(each) for each in first] == [[OTHER], []]
    text = requests.admit(RequestId("3"), request("llama"), ANONYMOUS, 0.0)
    assert links_of(text) == [LINK]
    requests.check_integrity()


def test_who_waits_is_not_given_to_an_agent_that_joins_and_lacks_what_he_needs() -> None:
    requests, registry = requests_with_agent()
    requests.admit(RequestId("1"), SCORED, ANONYMOUS, 0.0)
    requests.admit(RequestId("2"), SCORED, ANONYMOUS, 0.0)
    requests.admit(RequestId("3"), request("llama"), ANONYMOUS, 0.0)
    joined = requests.agent_joined(registry.joined(OTHER, forwarding("a2", slots=3), 0.0), 0.0)
    assert [(each.link, each.message.id) for each in joined if isinstance(each, Send)] == [
        (OTHER, "3")
    ]
    requests.check_integrity()
    left = requests.agent_left(registry.left(LINK), "agent_lost", 1.0)
    assert links_of(left) == []  # the one that ran waits, too
    third = LinkId(3)
    joined = requests.agent_joined(registry.joined(third, hello("a3", slots=2), 1.0), 1.0)
    assert links_of(joined) == [third, third]
    requests.check_integrity()


def test_the_queue_is_as_long_for_those_that_few_agents_can_serve() -> None:
    limits = Limits(max_buffered_requests=1)
    changes = ChangeLog()
    registry = Registry(limits, changes)
    requests = Lone(limits, registry, changes)
    requests.agent_joined(registry.joined(LINK, hello(slots=1), 0.0), 0.0)
    requests.agent_joined(registry.joined(OTHER, forwarding("a2", slots=3), 0.0), 0.0)
    for id in ("1", "2"):
        requests.admit(RequestId(id), SCORED, ANONYMOUS, 0.0)
    [refuse, _] = requests.admit(RequestId("3"), SCORED, ANONYMOUS, 0.0)
    assert isinstance(refuse, Refuse)
    assert refuse.error.code == "queue_full"
    assert len(requests.needs) == 1
    requests.check_integrity()


def links_of(decisions: list[Decision]) -> list[LinkId]:
    """Which agents were sent something."""
    return [each.link for each in decisions if isinstance(each, Send)]


R = RequestId("r")


def streaming() -> Lone:
    requests, _ = requests_with_agent()
    requests.admit(R, request(), ANONYMOUS, 0.0)
    lifecycle = requests.get(R)
    requests.gained([(lifecycle, Token("ab", "content", (1, 2)))], 1.0)
    return requests


def test_kept_tokens_are_those_of_requests_that_have_not_ended() -> None:
    requests = streaming()
    assert (len(requests.lives), R in requests.lives, requests.tokens_kept) == (1, True, 2)
    lifecycle = requests.get(R)
    requests.fail(lifecycle, EngineFailed("broken"), 2.0)
    assert (len(requests.lives), R in requests.lives, requests.tokens_kept) == (0, False, 0)
    requests.check_integrity()


def test_those_that_wait_are_demands() -> None:
    requests = streaming()
    requests.admit(RequestId("s"), request("llama"), ANONYMOUS, 5.0)
    assert list(requests.demands()) == [("llama", 1, 5.0)]


def test_a_miscount_is_found() -> None:
    requests = streaming()
    requests.tokens_kept += 1
    with pytest.raises(RuntimeError, match="miscounted"):
        requests.check_integrity()


def test_how_agents_were_chosen_is_counted() -> None:
    requests, _ = requests_with_agent(slots=2)
    prompt = GenerateRequest(prompt="A conversation that was long. " * 40)
    for id in ("1", "2"):
        requests.admit(RequestId(id), prompt, ANONYMOUS, 0.0)
    view = requests.dispatch.router.view
    assert (view.num_cold, view.num_warm, view.num_waited) == (1, 1, 0)
    assert view.num_beliefs > 0


ALICE, BOB = Caller(name="alice", owner="alice"), Caller(name="bob", owner="bob")


class Opened:
    """One agent of one slot, which `1` of Alice has; `2` of Bob and `3` of Alice wait."""

    def __init__(self) -> None:
        changes = ChangeLog()
        registry = Registry(Limits(), changes)
        self.requests = Lone(Limits(), registry, changes)
        self.agent = registry.joined(LINK, hello(slots=1, fingerprint="f"), 0.0)
        self.requests.agent_joined(self.agent, 0.0)
        for id, caller in (("1", ALICE), ("2", BOB), ("3", ALICE)):
            wanted = request(deadline_ms=5000, prompt_cache_key="batch 7")
            started = self.requests.admit(RequestId(id), wanted, caller, 0.0)
            assert sent(started) == ([] if id != "1" else [start_of("1")])

    def lifecycle(self, id: str) -> Request:
        return self.requests.get(RequestId(id))


def start_of(id: str, caller: Caller = ALICE) -> Start:
    """Agents are not told of deadlines and cache keys that are for routing alone."""
    return Start(id=RequestId(id), request=request(), scope=caller.scope)


def test_the_next_starts_when_one_fails() -> None:
    opened = Opened()
    decisions = opened.requests.fail(opened.lifecycle("1"), RequestError("broken"), 1.0)
    assert sent(decisions) == [start_of("2", BOB)]
    opened.requests.check_integrity()


def test_ending_all_starts_nobody() -> None:
    opened = Opened()
    decisions = opened.requests.end(
        dict.fromkeys(opened.requests.all, ShuttingDown("closing time")), 1.0
    )
    assert sent(decisions) == [Cancel(id=RequestId("1"))]
    assert codes(decisions) == dict.fromkeys(("1", "2", "3"), "shutting_down")
    assert len(opened.requests.lives) == 0
    opened.requests.check_integrity()


def test_ending_a_callers_requests_leaves_the_others() -> None:
    opened = Opened()
    made = [each for each in opened.requests.all if each.caller.owner == "alice"]
    decisions = opened.requests.end(dict.fromkeys(made, ShuttingDown("no key")), 1.0)
    assert codes(decisions) == dict.fromkeys(("1", "3"), "shutting_down")
    assert sent(decisions) == [Cancel(id=RequestId("1")), start_of("2", BOB)]
    opened.requests.check_integrity()


def test_what_leaves_an_agent_moves_once_that_has_answered() -> None:
    opened = Opened()
    error = ShuttingDown("too late")
    opened.agent.is_cordoned = True
    assert opened.requests.agent_changed(opened.agent, 1.0) == []
    assert sent(opened.requests.move_from(LINK, error, 1.0)) == [Cancel(id=RequestId("1"))]
    assert opened.requests.move_from(LINK, error, 1.0) == [], "it is told once"
    left = opened.requests.let_go(opened.lifecycle("1"), 2.0)
    assert [each.reason for each in left if isinstance(each, Moved)] == ["drained"]
    assert opened.lifecycle("1").link is None
    opened.requests.check_integrity()


def test_a_lost_agents_request_ends_only_if_it_cannot_go_on() -> None:
    opened = Opened()
    lifecycle = opened.lifecycle("1")
    assert loss_of(lifecycle) is None
    opened.requests.cancel([lifecycle], 1.0)
    error = loss_of(lifecycle)
    assert error is not None
    assert error.code == "cancelled"


def test_a_refusal_is_told_and_recorded() -> None:
    opened = Opened()
    error = QueueFull("full")
    refused, finished = refuse(opened.lifecycle("2"), error, 1.0)
    assert refused == Refuse(RequestId("2"), error)
    assert isinstance(finished, Finish)


def test_an_offer_is_what_the_agent_says_of_itself() -> None:
    offer = offer_of(Opened().agent, UncommonNeeds())
    assert (offer.model, offer.slots, offer.fingerprint) == ("llama", 1, "f")
    assert offer.cache_tokens == 2048
