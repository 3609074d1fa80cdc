"""Queries through the fleet's core, as clients and agents see them."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import (
    Decision,
    Disconnect,
    Finish,
    LinkId,
    Refuse,
    Send,
    Settle,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.queries.query_dispatcher import MAX_AGENTS_LOST, PARTS_PER_AGENT
from arriero.balancer.fleet.registry import BUSY_PAUSE
from arriero.balancer.fleet.requests.request import SUSPECT_SECONDS
from arriero.shared.errors import InvalidRequest, QueueFull, RequestError, ShuttingDown, to_wire
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    RequestId,
)
from arriero.shared.messages import Ask, Reply, Start, Status, Withdraw
from arriero.shared.queries import (
    CountTokens,
    Declined,
    Embed,
    Embedded,
    Result,
    Tokenize,
    Tokenized,
    Vector,
)
from tests.balancer.fleet.builders import (
    codes,
    ended,
    hello,
    model_info,
    output,
    request,
    seen,
    sent,
    status,
)

A, B = LinkId(1), LinkId(2)
Q, R = RequestId("q"), RequestId("r")
LIMITS = Limits(max_buffered_requests=1, buffered_request_timeout=10.0, request_timeout=60.0)
MODEL = replace(model_info("llama"), tasks=("generate", "embed"))
BERT = replace(model_info("bert"), tasks=("embed",))


def embed(*texts: str, model: str | None = None) -> QueryRequest:
    return QueryRequest(
        kind="embed", parts=tuple(Embed(inputs=(text,)) for text in texts), model=model
    )


def test_pictures_are_counted_by_agents_that_read_them() -> None:
    url = ImageUrl(url="data:image/png;base64,AA==")
    said = ChatMessage(role="user", content=(ImagePart(type="image_url", image_url=url),))
    count = CountTokens(request=GenerateRequest(messages=(said,)))
    scene = Scene()
    scene.join(A)
    scene.join(B, replace(MODEL, tasks=("generate", "vision")))
    many = QueryRequest(kind="text", parts=(count,) * 4, model="llama")
    asked = [each.link for each in scene.ask(Q, many) if isinstance(each, Send)]
    assert asked == [B] * PARTS_PER_AGENT["vision"]
    text = QueryRequest(kind="text", parts=(Tokenize(text="a"),), model="llama")
    [sent_to] = [each.link for each in scene.ask(R, text) if isinstance(each, Send)]
    assert sent_to in (A, B)


def vector(text: str) -> Embedded:
    return Embedded(vectors=(Vector(vector=text, num_tokens=len(text)),))


class Scene:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.fleet = Fleet(limits)
        self.now = 0.0

    def join(self, link: LinkId, model: object = MODEL, slots: int = 2) -> list[Decision]:
        greeting = replace(hello(f"a{link}", slots=slots), model=model)
        return self._checked(self.fleet.agent_joined(link, greeting, self.now))

    def ask(
        self, id: RequestId, query_request: QueryRequest, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        return self._checked(self.fleet.query_arrived(id, query_request, self.now, caller=caller))

    def answer_all(self, decisions: list[Decision]) -> list[str]:
        """Answer what agents were asked, and what they are asked then; the ids, in that order."""
        asked = asks(decisions)
        for link, name in asked:
            asked += asks(self.reply(link, name, vector("x")))
        return [name for _, name in asked]

    def reply(self, link: LinkId, name: str, result: Result) -> list[Decision]:
        message = Reply(id=RequestId(name), result=result)
        return self._checked(self.fleet.agent_said(link, message, self.now))

    def leave(self, link: LinkId) -> list[Decision]:
        return self._checked(self.fleet.agent_left(link, self.now))

    def say(self, link: LinkId, message: Status) -> list[Decision]:
        return self._checked(self.fleet.agent_said(link, message, self.now))

    def drain(self, within: float) -> list[Decision]:
        return self._checked(self.fleet.drain(self.now, self.now + within))

    def tick(self, now: float) -> list[Decision]:
        self.now = now
        return self._checked(self.fleet.tick(now))

    def _checked(self, decisions: list[Decision]) -> list[Decision]:
        self.fleet.check_integrity()
        return decisions


@pytest.fixture
def scene() -> Scene:
    return Scene()


def asks(decisions: list[Decision]) -> list[tuple[LinkId, str]]:
    return [
        (d.link, d.message.id)
        for d in decisions
        if isinstance(d, Send) and isinstance(d.message, Ask)
    ]


def settled(decisions: list[Decision]) -> dict[RequestId, object]:
    return {d.query: d.outcome for d in decisions if isinstance(d, Settle)}


def refusal(decisions: list[Decision]) -> RequestError:
    [error] = [d.error for d in decisions if isinstance(d, Refuse)]
    return error


def test_parts_go_to_the_agents_and_their_results_back_in_order(scene: Scene) -> None:
    scene.join(A)
    scene.join(B)
    assert asks(scene.ask(Q, embed("a", "bb", "ccc"))) == [(A, "q.0"), (B, "q.1"), (A, "q.2")]
    scene.reply(A, "q.2", vector("ccc"))
    scene.reply(B, "q.1", vector("bb"))
    last = scene.reply(A, "q.0", vector("a"))
    assert settled(last) == {Q: (vector("a"), vector("bb"), vector("ccc"))}
    [finish] = [d for d in last if isinstance(d, Finish)]
    assert (finish.ending.code, finish.ending.usage.prompt_tokens) == ("answered", 6)
    assert scene.fleet.is_idle


def test_no_slot_is_taken_or_waited_for(scene: Scene) -> None:
    scene.join(A, slots=1)
    scene.fleet.request_arrived(R, request(), 0.0)
    assert asks(scene.ask(Q, embed("a"))) == [(A, "q.0")]
    totals = seen(scene.fleet).totals()
    assert (totals.slots_busy, totals.queue_depth, totals.parts_asked) == (1, 0, 1)


def test_an_agent_that_is_lost_midway(scene: Scene) -> None:
    scene.join(A)
    scene.join(B)
    scene.ask(Q, embed("a", "b", "c", "d"))
    scene.reply(A, "q.0", vector("a"))
    scene.tick(2 * SUSPECT_SECONDS)
    assert asks(scene.leave(A)) == []
    assert asks(scene.reply(B, "q.1", vector("b"))) == [(B, "q.2")]
    scene.reply(B, "q.2", vector("c"))
    assert settled(scene.reply(B, "q.3", vector("d")))[Q] == tuple(map(vector, "abcd"))


def test_the_last_agent_leaves_the_parts_to_whoever_comes(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    scene.leave(A)
    assert asks(scene.join(B)) == [(B, "q.0")]


def test_a_query_that_agents_die_of_ends(scene: Scene) -> None:
    decisions: list[Decision] = []
    scene.ask(Q, embed("a"))
    for number in range(MAX_AGENTS_LOST):
        scene.join(LinkId(number + 1))
        decisions = scene.leave(LinkId(number + 1))
    assert codes(decisions) == {Q: "agent_lost"}


def test_a_query_that_ended_two_agents_is_given_to_no_third(scene: Scene) -> None:
    for link in (A, B, LinkId(3)):
        scene.join(link)
    scene.ask(Q, embed("a"))
    assert asks(scene.leave(A)) == [(B, "q.0")]
    decisions = scene.leave(B)
    assert (codes(decisions), asks(decisions)) == ({Q: "agent_lost"}, [])


class TestASuspect:
    """A was lost just after it got a part, while `B` runs the request `R`."""

    @pytest.fixture
    def scene(self) -> Scene:
        scene = Scene(replace(LIMITS, max_buffered_requests=8))
        scene.join(A, BERT)
        scene.join(B)
        assert asks(scene.ask(Q, embed("a"))) == [(A, "q.0")]
        scene.fleet.request_arrived(R, request(), 0.0)
        assert asks(scene.leave(A)) == [], "B answers such queries, and runs a request"
        return scene

    def test_runs_where_nothing_else_does(self, scene: Scene) -> None:
        scene.fleet.agent_said(B, output(ended("r")), 0.0)
        assert asks(scene.tick(0.0)) == [(B, "q.0")]
        later = scene.fleet.request_arrived(RequestId("later"), request(), 0.0)
        assert asks([*later, *scene.ask(RequestId("e"), embed("b"))]) == [], "one thing at a time"
        assert not [each for each in sent(later) if isinstance(each, Start)]
        decisions = scene.reply(B, "q.0", vector("a"))
        assert settled(decisions) == {Q: (vector("a"),)}
        assert asks(decisions) == [(B, "e.0")]
        assert [each.id for each in sent(decisions) if isinstance(each, Start)] == ["later"]

    def test_ends_with_the_second_agent(self, scene: Scene) -> None:
        scene.fleet.agent_said(B, output(ended("r")), 0.0)
        scene.tick(0.0)
        assert codes(scene.leave(B)) == {Q: "agent_lost"}

    def test_is_tried_again_if_its_agent_declines(self, scene: Scene) -> None:
        scene.fleet.agent_said(B, output(ended("r")), 0.0)
        scene.tick(0.0)
        busy = Declined(error=to_wire(QueueFull("busy")))
        assert asks(scene.reply(B, "q.0", busy)) == []
        assert asks(scene.tick(BUSY_PAUSE)) == [(B, "q.0")]

    def test_goes_with_its_client(self, scene: Scene) -> None:
        assert codes(scene.fleet.close(Q, 0.0)) == {Q: "client_gone"}
        scene.fleet.agent_said(B, output(ended("r")), 0.0)
        assert asks(scene.tick(0.0)) == [] and scene.fleet.is_idle

    def test_ends_if_no_agent_has_nothing_else_to_do_in_time(self, scene: Scene) -> None:
        assert codes(scene.tick(LIMITS.buffered_request_timeout))[Q] == "queue_timeout"


def test_an_agent_that_is_going_hands_its_part_on(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    scene.join(B)
    going = Declined(error=to_wire(ShuttingDown("going")))
    assert asks(scene.reply(A, "q.0", going)) == [(B, "q.0")]


def test_any_other_error_is_the_querys(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b"))
    error = InvalidRequest("no", field="pooling")
    decisions = scene.reply(A, "q.0", Declined(error=to_wire(error)))
    assert settled(decisions) == {Q: error}
    assert sent(decisions) == [Withdraw(id=RequestId("q.1"))]
    assert settled(scene.reply(A, "q.1", vector("b"))) == {}
    assert seen(scene.fleet).totals().items_ignored == 1


def test_an_answer_that_does_not_fit_is_an_error(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    assert codes(scene.reply(A, "q.0", Tokenized(tokens=()))) == {Q: "engine_failed"}


@pytest.mark.parametrize("name", ["q", "q.", "q.x", "q.7", "q.-1", ".0", "nobody.0", "q.²"])
def test_replies_that_nobody_waits_for_are_counted(scene: Scene, name: str) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    assert settled(scene.reply(A, name, vector("a"))) == {}
    assert seen(scene.fleet).totals().items_ignored == 1


def test_a_client_that_goes_withdraws_what_agents_have(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b", "c"))
    decisions = scene.fleet.close(Q, 0.0)
    assert sent(decisions) == [Withdraw(id=RequestId(f"q.{n}")) for n in range(2)]
    assert codes(decisions) == {Q: "client_gone"}
    assert scene.fleet.close(Q, 0.0) == []


def test_one_that_is_cancelled_is_told(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    assert Q in scene.fleet
    assert codes(scene.fleet.cancel([Q, Q], 0.0)) == {Q: "cancelled"}
    assert Q not in scene.fleet


def test_the_queue_is_bounded(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed(*"abc"))  # two with the agent, one waits
    assert refusal(scene.ask(R, embed("a"))).code == "queue_full"
    assert PARTS_PER_AGENT["embed"] == 2
    text = QueryRequest(kind="text", parts=(Tokenize(text="a"),))
    assert asks(scene.ask(R, text)) == [(A, "r.0")], "tokens do not wait for embeddings"


def test_nobody_there_to_answer_in_time(scene: Scene) -> None:
    scene.ask(Q, embed("a"))
    assert codes(scene.tick(10.0)) == {Q: "queue_timeout"}


def test_an_agent_that_never_answers(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    for now in range(4, 60, 4):
        scene.now = now
        scene.fleet.agent_said(A, status(), now)
    decisions = scene.tick(60.0)
    assert codes(decisions) == {Q: "request_timeout"}
    assert not any(isinstance(d, Disconnect) for d in decisions)


def test_room_that_frees_at_a_querys_own_deadline_comes_too_late_for_it() -> None:
    scene = Scene(
        replace(
            LIMITS, buffered_request_timeout=6.0, request_timeout=20.0, heartbeat_timeout=1000.0
        )
    )
    third = RequestId("third")
    scene.join(A)
    scene.ask(Q, embed("a"))
    scene.ask(R, embed("b"))
    scene.tick(14.0)
    assert asks(scene.ask(third, embed("c"))) == []
    ended = scene.tick(20.0)
    assert codes(ended) == {Q: "request_timeout", R: "request_timeout", third: "queue_timeout"}
    assert asks(ended) == []
    assert scene.fleet.is_idle


def test_what_a_model_cannot_do_is_refused(scene: Scene) -> None:
    scene.join(A)
    scene.join(B, BERT, slots=0)
    assert seen(scene.fleet).totals().slots_total == 2
    decisions = scene.fleet.request_arrived(R, request("bert"), 0.0)
    assert refusal(decisions).message == "the model `bert` cannot generate text"
    rank = QueryRequest(kind="rank", parts=(Tokenize(text="a"),), model="llama")
    assert refusal(scene.ask(Q, rank)).message == "the model `llama` cannot rank documents"
    assert asks(scene.ask(Q, embed("a", model="bert"))) == [(B, "q.0")]


def test_an_agent_that_only_embeds_makes_the_fleet_ready(scene: Scene) -> None:
    assert not seen(scene.fleet).totals().is_ready
    scene.join(B, BERT, slots=0)
    assert seen(scene.fleet).totals().is_ready
    assert seen(scene.fleet).model_name_for("generate") == ""
    assert seen(scene.fleet).model_name_for("embed") == "bert"


def test_draining_refuses_and_ends_at_the_deadline(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    scene.fleet.drain(1.0, 2.0)
    assert refusal(scene.ask(R, embed("a"))).code == "shutting_down"
    assert not scene.fleet.is_idle
    assert codes(scene.tick(2.0)) == {Q: "shutting_down"}
    assert scene.fleet.is_idle


def test_queries_are_seen_among_the_requests(scene: Scene) -> None:
    scene.ask(Q, embed("a", model="llama"))
    [view] = seen(scene.fleet, 3.0).view().requests
    assert (view.id, view.state, view.model, view.waited_seconds) == ("q", "queued", "llama", 3.0)


# ---- draining


def no_agent_can(decisions: list[Decision], id: RequestId) -> bool:
    error = settled(decisions).get(id)
    return isinstance(error, ShuttingDown) and "no agent can serve this" in error.message


def test_with_draining_nobody_waits_whom_no_agent_can_serve(scene: Scene) -> None:
    scene.ask(Q, embed("a"))
    assert no_agent_can(scene.drain(5.0), Q)
    assert scene.fleet.is_idle


def test_with_draining_a_query_waits_for_an_agent_that_is_only_busy(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b", "c"))
    assert settled(scene.drain(5.0)) == {}
    assert asks(scene.reply(A, "q.0", vector("a"))) == [(A, "q.2")]


def test_with_draining_the_last_agent_that_could_takes_the_query_along(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b", "c"))
    scene.ask(R, QueryRequest(kind="text", parts=(Tokenize(text="a"),)))
    scene.drain(5.0)
    stops = scene.say(A, status(accepting=False))
    assert no_agent_can(stops, Q)
    assert sent(stops) == [Withdraw(id=RequestId(f"q.{n}")) for n in range(2)]
    assert settled(scene.reply(A, "r.0", Tokenized(tokens=()))) == {R: (Tokenized(tokens=()),)}


def test_with_draining_what_an_agent_hands_back_or_loses_ends(scene: Scene) -> None:
    going = Declined(error=to_wire(ShuttingDown("going")))
    scene.join(A, BERT)
    scene.join(B)
    scene.ask(Q, embed("a", model="bert"))
    scene.ask(R, embed("a", model="llama"))
    scene.drain(5.0)
    scene.say(A, Status(slots=0, accepting=False, model=BERT))
    assert no_agent_can(scene.reply(A, "q.0", going), Q)
    assert no_agent_can(scene.leave(B), R)


def test_at_the_end_of_draining_nothing_is_asked_in_vain(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b"))
    scene.ask(R, embed("c"))
    scene.drain(2.0)
    decisions = scene.tick(2.0)
    assert codes(decisions) == {Q: "shutting_down", R: "shutting_down"}
    assert asks(decisions) == []


# ---- nothing in vain


def test_of_several_that_are_cancelled_none_is_asked_any_more(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a", "b"))
    scene.ask(R, embed("c"))
    decisions = scene.fleet.cancel([Q, R], 0.0)
    assert codes(decisions) == {Q: "cancelled", R: "cancelled"}
    assert sent(decisions) == [Withdraw(id=RequestId(f"q.{n}")) for n in range(2)]


def test_an_agent_that_is_taken_for_lost_is_asked_nothing_any_more(scene: Scene) -> None:
    """A query that ends at the very moment would make room for the one that waits."""
    limits = replace(LIMITS, request_timeout=LIMITS.heartbeat_timeout + SECOND_LOOK)
    scene.fleet = Fleet(limits)
    scene.join(A)
    scene.ask(Q, embed("a", "b"))
    scene.now = 1.0
    scene.ask(R, embed("c"))
    assert codes(scene.tick(limits.heartbeat_timeout)) == {}
    decisions = scene.tick(limits.request_timeout)
    assert codes(decisions) == {Q: "request_timeout"}
    assert asks(decisions) == []


# ---- waiting


def test_a_query_that_lost_its_agent_has_what_was_left_of_its_wait(scene: Scene) -> None:
    scene.now = 4.0
    scene.ask(Q, embed("a", "b", "c"))
    scene.tick(7.0)
    scene.join(A)
    scene.tick(9.0)
    scene.leave(A)
    assert seen(scene.fleet, 9.0).view().requests[0].state == "queued"
    assert settled(scene.tick(15.9)) == {}
    assert codes(scene.tick(16.0)) == {Q: "queue_timeout"}


def test_an_agent_that_has_too_much_to_answer_is_tried_again(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    full = Declined(error=to_wire(QueueFull("too much")))
    assert asks(scene.reply(A, "q.0", full)) == []
    assert asks(scene.tick(BUSY_PAUSE - 0.1)) == []
    assert asks(scene.tick(BUSY_PAUSE)) == [(A, "q.0")]


def test_a_query_that_was_handed_back_waits_no_longer_than_others(scene: Scene) -> None:
    scene.join(A)
    scene.ask(Q, embed("a"))
    scene.reply(A, "q.0", Declined(error=to_wire(QueueFull("too much"))))
    totals = seen(scene.fleet, 0.0).view()
    assert ([each.state for each in totals.requests], totals.num_requests) == (["queued"], 1)
    scene.leave(A)
    assert codes(scene.tick(LIMITS.buffered_request_timeout)) == {Q: "queue_timeout"}


# ---- shares


def test_a_small_query_does_not_wait_for_the_whole_of_a_large_one() -> None:
    scene = Scene(replace(LIMITS, max_buffered_requests=10))
    scene.join(A)
    first = scene.ask(Q, embed(*"abcdef"))
    scene.ask(R, embed("x", "y"))
    assert scene.answer_all(first) == ["q.0", "q.1", "r.0", "q.2", "r.1", "q.3", "q.4", "q.5"]


def test_callers_have_equal_shares_however_much_each_asks() -> None:
    scene = Scene(replace(LIMITS, max_buffered_requests=10))
    scene.join(A)
    first = scene.ask(Q, embed(*"ab"), Caller("eager"))
    for number in range(3):
        scene.ask(RequestId(f"e{number}"), embed("x"), Caller("eager"))
    scene.ask(R, embed("x", "y"), Caller("modest"))
    order = scene.answer_all(first)
    assert [name[0] for name in order[2:6]] in (["e", "r"] * 2, ["r", "e"] * 2)
