"""An agent that says anything, beside a good one, on the composed core.

Messages are made past their types, so that values come which decoding refuses.
"""

from dataclasses import astuple, replace
from itertools import count
from math import inf, isfinite, nan

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.fleet.bad_messages import CODE, FIRST_PAUSE
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    Disconnect,
    Finish,
    LinkId,
    LogBad,
    Settle,
)
from arriero.balancer.fleet.registry import STATUSES_A_SECOND, STATUSES_AT_ONCE
from arriero.balancer.fleet.routing.fetches import Fetches as RoutedFetches
from arriero.balancer.fleet.routing.policy import Load
from arriero.shared.errors import BY_CODE, EngineFailed, Unauthorized, WireError
from arriero.shared.inference import Rates, RequestId, Usage
from arriero.shared.inference.prefix_peers import Peer
from arriero.shared.messages import (
    Busy,
    Called,
    CallStarted,
    Ended,
    Evicted,
    FromAgent,
    Output,
    Piece,
    PromptRead,
    Refused,
    Reject,
    Start,
    Welcome,
)
from arriero.shared.models.assignments import Assignment, Download, Work
from arriero.shared.reports.statistics import Cells, Fetches, Statistics
from tests.balancer.fleet.builders import (
    codes,
    ended,
    hello,
    model_info,
    piece,
    refused,
    seen,
    sent,
    status,
)
from tests.balancer.fleet.core.scene import NO_HEARTBEATS, A, B, Scene, failure, with_agent

C = LinkId(3)

PROMPT = piece("r", "Once", "prompt", num_tokens=0)
"""Where it was not asked for."""


def test_a_message_that_cannot_be_true_ends_the_link_and_moves_its_requests() -> None:
    scene = with_agent(2)
    scene.open("r", "s")
    scene.join(B, hello("b"))
    said = scene.say(A, replace(ended("s"), usage=Usage(completion_tokens=2)), PROMPT)
    reason = "a part of the prompt where none can come"
    assert said[:2] == [LogBad("host-a1", reason), Disconnect(A, f"{CODE}: {reason}")]
    assert [each.id for each in sent(said) if isinstance(each, Start)] == ["r", "s"]
    assert codes(said) == {}, "nothing of the message counts"
    assert seen(scene.fleet).totals().num_agents == 1


def test_it_may_dial_again_after_a_pause_and_operators_see_why() -> None:
    scene = with_agent()
    scene.fleet.agent_broke(A, "junk", scene.now)
    assert [type(each) for each in sent(scene.join(B, hello("a1")))] == [Reject]
    assert [type(each) for each in sent(scene.join(B, hello("other")))] == [Welcome]
    scene.now += FIRST_PAUSE
    assert [type(each) for each in sent(scene.join(C, hello("a1")))] == [Welcome]
    views = {each.id: each.issues for each in seen(scene.fleet, scene.now).view().agents}
    assert [issue.code for issue in views["a1"]] == [CODE]
    assert views["other"] == ()


def test_a_fault_of_ours_is_the_end_of_one_link_only() -> None:
    scene = with_agent()
    scene.open("r")
    scene.join(B, hello("b"))

    class Broken(RoutedFetches):
        def measured(self, link: LinkId, done: Fetches) -> None:
            raise ZeroDivisionError

    scene.fleet.state.requests.dispatch.router._fetches = Broken()
    said = scene.fleet.agent_said(A, Statistics(fetches=Fetches(bytes=1)), scene.now)
    [bad] = [each for each in said if isinstance(each, LogBad)]
    assert bad.is_ours and isinstance(bad.error, ZeroDivisionError)
    assert [each.id for each in sent(said) if isinstance(each, Start)] == ["r"]
    scene.fleet.check_integrity()


def test_clients_of_what_a_fault_forgot_are_answered() -> None:
    scene = with_agent()
    scene.open("r")
    lost = scene.fleet.forgotten([RequestId("r"), RequestId("gone")], [RequestId("asked")])
    assert codes(lost) == {"gone": "internal_error", "asked": "internal_error"}
    assert [type(each) for each in lost] == [Deliver, Finish, Settle, Finish]


def test_an_agent_knows_nothing_of_keys() -> None:
    scene = with_agent()
    scene.open("r")
    said = scene.say(A, refused("r", Unauthorized("no")))
    assert failure(said, "r") == EngineFailed("no")


def test_a_flood_of_statuses_counts_a_few_times_and_last() -> None:
    scene = with_agent()
    revisions = set()
    for slots in range(1, 101):
        scene.fleet.agent_said(A, status(slots), scene.now)
        revisions.add(scene.fleet.revision)
    assert len(revisions) == STATUSES_AT_ONCE
    assert seen(scene.fleet).totals().slots_total == STATUSES_AT_ONCE
    assert scene.fleet.next_deadline() == scene.now + 1 / STATUSES_A_SECOND
    scene.after(1 / STATUSES_A_SECOND)
    assert seen(scene.fleet).totals().slots_total == 100
    assert (scene.fleet.next_deadline() or inf) > scene.now + 1


def test_an_agent_that_changes_now_and_then_is_never_delayed() -> None:
    scene = with_agent()
    for slots in range(1, 20):
        scene.after(1 / STATUSES_A_SECOND)
        scene.fleet.agent_said(A, status(slots), scene.now)
        assert seen(scene.fleet).totals().slots_total == slots


# ---- any history

ANY_FLOAT = st.floats() | st.sampled_from([5e-324, 1e308, inf, nan, -1.0, 0.0])
ANY_COUNT = st.integers(0, 2**31 - 1) | st.sampled_from([2**63, 10**308, 10**400])
ANY_RATES = st.builds(
    Rates,
    prefill_tokens_per_second=st.none() | ANY_FLOAT,
    decode_tokens_per_second=st.none() | ANY_FLOAT,
)
SMALL = st.integers(0, 40)
ANY_USAGE = st.builds(
    Usage,
    prompt_tokens=SMALL | ANY_COUNT,
    cached_tokens=SMALL | ANY_COUNT,
    completion_tokens=SMALL | ANY_COUNT,
    reasoning_tokens=SMALL | ANY_COUNT,
)
ANY_ERROR = st.builds(
    WireError,
    code=st.sampled_from(sorted(BY_CODE)) | st.text(max_size=5),
    message=st.text(max_size=5),
    retryable=st.booleans(),
    retry_after=st.none() | ANY_FLOAT,
)
ID = st.just(RequestId(""))
ANY_ITEM = st.one_of(
    st.builds(Ended, id=ID, finish_reason=st.just("stop"), usage=ANY_USAGE, rates=ANY_RATES),
    st.builds(PromptRead, id=ID, prompt_tokens=SMALL | ANY_COUNT, cached_tokens=SMALL | ANY_COUNT),
    st.builds(Refused, id=ID, error=ANY_ERROR),
    st.builds(
        Piece,
        id=ID,
        text=st.text(max_size=3),
        kind=st.sampled_from(["content", "reasoning", "tool_call", "prompt"]),
        tokens=st.lists(SMALL | ANY_COUNT, max_size=2).map(tuple),
    ),
    st.builds(CallStarted, id=ID, call_id=st.just("c"), name=st.just("f")),
    st.builds(Called, id=ID, call_id=st.just("c"), name=st.just("f"), arguments=st.just("{")),
    st.builds(Busy, id=ID),
)
ANY_WORK = st.builds(
    Work,
    revision=st.integers(0, 2**53),
    assignment=st.just(Assignment(name="llama", source="file:///llama.gguf")),
    phase=st.sampled_from(["loading", "fetching"]),
    progress=st.none() | ANY_FLOAT,
    download=st.none()
    | st.builds(Download, file=st.just("f"), bytes=SMALL, seconds_left=st.none() | ANY_FLOAT),
)
PEER = Peer(address="h:1", tls=False, cells="c", cell_bytes=1)
ANY_MESSAGE = st.one_of(
    st.builds(lambda items: Output(items=tuple(items)), st.lists(ANY_ITEM, max_size=4)),
    st.builds(
        lambda fetched, seconds, total: Statistics(
            fetches=Fetches(bytes=fetched, seconds=seconds), cells=Cells(total=total)
        ),
        ANY_COUNT,
        ANY_FLOAT,
        ANY_COUNT,
    ),
    st.builds(lambda work, slots: replace(status(slots, peer=PEER), work=work), ANY_WORK, SMALL),
    st.builds(Evicted, keys=st.lists(ANY_COUNT, max_size=3).map(tuple), everything=st.booleans()),
)


@given(history=st.lists(st.tuples(ANY_MESSAGE, st.sampled_from([0.0, 0.1, 2.0])), max_size=25))
def test_whatever_one_agent_says_the_others_serve(
    history: list[tuple[FromAgent, float]],
) -> None:
    """The first agent says anything of its requests, also what its types forbid."""
    scene = Scene(NO_HEARTBEATS)
    links = count(3)
    rogue = A
    scene.join(A, replace(hello("rogue"), model=model_info("llama", "f")))
    scene.join(B, replace(hello("good"), model=model_info("llama", "f")))
    decisions: list[Decision] = []
    names = count()
    for message, seconds in history:
        scene.now += seconds
        decisions += scene.after(0.0)
        if scene.fleet.state.registry.get(rogue) is None:
            rogue = LinkId(next(links))
            decisions += scene.join(rogue, replace(hello("rogue"), model=model_info("llama", "f")))
        decisions += scene.open(f"r{next(names)}", f"r{next(names)}")
        held = _held(scene, rogue)
        if isinstance(message, Output) and held:
            items = tuple(replace(item, id=held[0]) for item in message.items)
            message = Output(items=items)
        decisions += scene._checked(scene.fleet.agent_said(rogue, message, scene.now))
        decisions += _good_answers(scene)
        assert not [each for each in decisions if isinstance(each, LogBad) and each.is_ours]
        _all_is_finite(scene)
    decisions += scene.leave(rogue)
    for _ in range(400):
        if scene.fleet.is_idle:
            break
        decisions += _good_answers(scene)
        decisions += scene.after(0.1)
    assert scene.fleet.is_idle
    assert {e.ending.request_id for e in decisions if isinstance(e, Finish)} == {
        RequestId(f"r{number}") for number in range(next(names))
    }


def _held(scene: Scene, link: LinkId) -> list[RequestId]:
    """The requests that an agent has, if it is here."""
    is_here = scene.fleet.state.registry.get(link) is not None
    running = scene.fleet.state.requests.dispatch.running_on(link) if is_here else []
    return [each.id for each in running]


def _good_answers(scene: Scene) -> list[Decision]:
    """The other agent ends all that it has."""
    return [each for id in _held(scene, B) for each in scene.say(B, piece(id), ended(id))]


def _all_is_finite(scene: Scene) -> None:
    router = scene.fleet.state.requests.dispatch.router
    for link in router._agents:
        assert all(map(isfinite, astuple(router._speeds.of(link, "llama"))))
        load = Load(running=1, slots=2, has_free_slot=True)
        assert isfinite(router.rank(link, load))
        if router._fetches.is_peer(link):
            assert isfinite(router._fetches.seconds(link, 1e6))
    for number in ("answer_tokens", "computed_tokens", "tokens_per_byte"):
        assert isfinite(getattr(router._speeds, number)("llama"))
    for agent in scene.fleet.state.registry:
        left = scene.fleet.steering._load_times.seconds_left(agent.link, agent.work, scene.now)
        assert left is None or isfinite(left)
