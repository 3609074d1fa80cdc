"""Agents join, rest, fall silent and leave."""

import pytest

from arriero.balancer.fleet.decisions import Decision, Disconnect, Finish, LinkId, Moved, Send
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.registry import BUSY_PAUSE, RETURNED
from arriero.balancer.fleet.requests.request import (
    ISOLATED_WAIT,
    MAX_AGENTS_LOST,
    SUSPECT_SECONDS,
)
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Heartbeat,
    Reject,
    Start,
    Welcome,
)
from arriero.shared.reports.statistics import DeviceMemory, Statistics
from tests.balancer.fleet.builders import (
    busy,
    codes,
    delivered,
    ended,
    hello,
    output,
    piece,
    seen,
    sent,
    status,
)
from tests.balancer.fleet.core.scene import LIMITS, A, B, Scene, failure, start, with_agent


def test_a_full_agent_is_tried_again_after_a_pause() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.say(A, busy("1"))
    assert scene.fleet.next_deadline() == scene.now + BUSY_PAUSE
    assert scene.after(BUSY_PAUSE / 2) == []
    assert sent(scene.after(BUSY_PAUSE / 2)) == [start("1")]


def test_a_full_agent_is_tried_again_when_it_reports_a_change() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.say(A, busy("1"))
    decisions = scene.fleet.agent_said(A, status(slots=3), scene.now)
    assert sent(decisions) == [start("1")]


def test_slots_shrink_below_what_runs() -> None:
    scene = with_agent(slots=2)
    scene.open("1", "2", "3")
    assert scene.fleet.agent_said(A, status(slots=1), scene.now) == []
    assert sent(scene.say(A, ended("1"))) == []
    assert sent(scene.say(A, ended("2"))) == [start("3")]


def test_a_draining_agent_finishes_what_runs_and_gets_nothing() -> None:
    scene = with_agent(slots=2)
    scene.open("1")
    scene.fleet.agent_said(A, status(accepting=False), scene.now)
    assert sent(scene.open("2")) == []
    assert seen(scene.fleet, scene.now).view().agents[0].state == "draining"
    assert codes(scene.say(A, ended("1"))) == {"1": "stop"}
    assert seen(scene.fleet).totals().queue_depth == 1


def test_a_lost_agents_requests_go_on_in_their_order_unless_they_streamed() -> None:
    scene = with_agent(slots=3)
    scene.open("1", "2", "3", "4")
    scene.say(A, piece("2"))
    scene.now += 2 * SUSPECT_SECONDS
    decisions = scene.leave(A)
    assert failure(decisions, "2").code == "agent_lost"
    assert sent(scene.join(B, hello("b", slots=3)))[1:] == [start("1"), start("3"), start("4")]


def test_a_request_that_takes_agents_down_ends_with_the_second() -> None:
    scene = with_agent(slots=2)
    scene.open("r", "bystander")
    scene.now += 2 * SUSPECT_SECONDS
    assert codes(scene.leave(A)) == {}
    scene.join(B, hello("b", slots=2))
    scene.say(B, piece("bystander"))
    decisions = scene.leave(B)
    assert failure(decisions, "r").message.startswith("2 agents were lost before")
    suspects = [each.ending for each in decisions if isinstance(each, Finish)]
    assert {each.request_id: each.is_suspect for each in suspects} == {
        "r": True,
        "bystander": False,
    }


C = LinkId(3)


def with_suspect() -> Scene:
    """A was lost just after it got `r`; its stream `a` goes on on B, beside the stream `b`."""
    scene = with_agent(slots=8, fingerprint="f")
    scene.join(B, hello("b", slots=3, fingerprint="f"))
    scene.open("a", "b")
    scene.say(A, piece("a"))
    scene.say(B, piece("b"))
    scene.now += 2 * SUSPECT_SECONDS
    assert [each.link for each in scene.open("r") if isinstance(each, Send)] == [A]
    assert [each.id for each in sent(scene.leave(A)) if isinstance(each, Start)] == ["a"]
    return scene


def test_what_an_agent_got_just_before_it_was_lost_runs_alone() -> None:
    scene = with_suspect()
    assert sent(scene.join(C, hello("c", slots=2, fingerprint="f")))[1:] == [start("r")]
    scene.open("1", "2")
    assert seen(scene.fleet).totals().queue_depth == 1
    assert sent(scene.say(C, piece("r"))) == [start("2")]


def test_it_ends_with_the_second_agent() -> None:
    scene = with_suspect()
    scene.join(C, hello("c", slots=2, fingerprint="f"))
    assert codes(scene.leave(C)) == {"r": "agent_lost"}


def test_an_agent_is_emptied_for_it_if_none_is_without_requests() -> None:
    scene = with_suspect()
    assert codes(scene.after(ISOLATED_WAIT)) == {}
    assert sent(scene.open("1")) == [], "B has a free slot, and is emptied"
    for _ in range(10):
        scene.say(B, piece("a"), piece("b"))
        assert codes(scene.after(ISOLATED_WAIT)) == {}, "however long that takes"
    assert sent(scene.say(B, ended("a"))) == []
    assert sent(scene.say(B, ended("b"))) == [start("r")]
    assert sent(scene.say(B, piece("r"))) == [start("1")]


def test_the_emptied_agent_is_filled_if_the_suspect_leaves() -> None:
    scene = with_suspect()
    scene.after(ISOLATED_WAIT)
    assert sent(scene.open("1")) == []
    assert sent(scene.close("r")) == [start("1")]


def test_it_waits_for_another_if_the_emptied_agent_is_lost() -> None:
    scene = with_suspect()
    scene.after(2 * ISOLATED_WAIT)
    scene.say(B, piece("a"))
    assert codes(scene.leave(B)) == {}
    assert sent(scene.join(C, hello("c", slots=3, fingerprint="f")))[1:] == [start("r")]


def with_streaming_suspect() -> Scene:
    """A was lost just after the answer of `r` began there, beside the stream `a`."""
    scene = with_agent(slots=8, fingerprint="f")
    scene.join(B, hello("b", slots=3, fingerprint="f"))
    scene.open("a", "b", "r")
    scene.say(A, piece("a"), piece("r"))
    scene.say(B, piece("b"))
    assert started(scene.leave(A)) == ["a"], "what came before it moves at once"
    return scene


def started(decisions: list[Decision]) -> list[str]:
    return [each.id for each in sent(decisions) if isinstance(each, Start)]


def test_an_answer_that_had_just_begun_goes_on_alone() -> None:
    scene = with_streaming_suspect()
    assert started(scene.join(C, hello("c", slots=2, fingerprint="f"))) == ["r"]
    scene.open("1", "2")
    scene.say(C, piece("r"))
    assert codes(scene.leave(C)) == {"r": "agent_lost"}


def test_an_answer_that_has_begun_does_not_wait_until_others_end() -> None:
    scene = with_streaming_suspect()
    assert started(scene.after(ISOLATED_WAIT)) == ["r"]
    assert codes(scene.leave(B)) == {"r": "agent_lost"}


def test_it_waits_for_the_only_agent_to_come_back() -> None:
    scene = with_agent(slots=2)
    scene.open("r", "s")
    assert codes(scene.leave(A)) == {}
    assert codes(scene.after(2 * ISOLATED_WAIT)) == {}
    assert sent(scene.join(B, hello("a1", slots=2)))[1:] == [start("r")]
    assert sent(scene.say(B, piece("r"))) == [start("s")]


def test_a_request_that_takes_agents_down_alone_is_found_earlier() -> None:
    scene = with_agent()
    scene.open("r")
    assert codes(scene.leave(A)) == {}
    scene.join(B, hello("b"))
    assert failure(scene.leave(B), "r").message.startswith("2 agents in a row")


def test_agents_that_hang_up_were_not_taken_down() -> None:
    """After a pause of the balancer all have hung up, and it reads that of one after the other."""
    scene = Scene()
    scene.open("r")
    for i in range(2 * MAX_AGENTS_LOST):
        scene.join(LinkId(i), hello(f"a{i}"))
        assert codes(scene.leave(LinkId(i), hung_up=True)) == {}
    assert sent(scene.join(B, hello("b")))[1:] == [start("r")]


def test_an_agent_that_dials_again_takes_its_own_place() -> None:
    scene = with_agent(slots=2)
    scene.open("1", "2")
    scene.say(A, piece("2"))
    decisions = scene.join(B, hello("a1", slots=2))
    assert Disconnect(A, "the agent has dialled again") in decisions
    assert codes(decisions) == {"2": "agent_lost"}
    assert decisions[-1] == Send(B, start("1"))
    assert scene.leave(A) == [], "the old socket's end is no second loss"
    assert scene.say(A, ended("1")) == [], "nor does its last word count"
    assert codes(scene.say(B, ended("1"))) == {"1": "stop"}
    assert seen(scene.fleet).totals().num_agents == 1


def test_a_second_hello_costs_the_agent_its_link() -> None:
    scene = with_agent()
    scene.open("r")
    scene.join(B, hello("b"))
    decisions = scene.fleet.agent_said(A, hello("a1"), scene.now)
    assert decisions == [
        Disconnect(A, "a second hello on one link"),
        Moved(RequestId("r"), "lost", Origin("host-a1", "llama")),
        Send(B, start("r")),
    ]


def test_another_protocol_is_rejected_with_a_reason() -> None:
    scene = Scene()
    reject, disconnect = scene.join(A, hello(protocol=PROTOCOL_VERSION + 1))
    assert isinstance(reject, Send)
    assert isinstance(reject.message, Reject)
    assert not reject.message.retry
    assert f"protocols {OLDEST_PROTOCOL} to {PROTOCOL_VERSION}" in reject.message.reason
    assert disconnect == Disconnect(A, reject.message.reason)
    assert seen(scene.fleet).totals().num_agents == 0


def test_an_older_agent_is_spoken_to_in_its_version() -> None:
    [welcome] = Scene().join(A, hello(protocol=OLDEST_PROTOCOL))
    assert isinstance(welcome, Send)
    assert isinstance(welcome.message, Welcome)
    assert welcome.message.protocol == OLDEST_PROTOCOL


def test_a_silent_agent_is_lost() -> None:
    scene = with_agent(limits=LIMITS)
    scene.open("r")
    scene.join(B, hello("b"))
    for _ in range(4):
        scene.after(1.0)
        scene.fleet.agent_said(B, Heartbeat(), scene.now)
    assert Disconnect(A, "silent for 5 s") not in scene.after(1.0)
    decisions = scene.after(SECOND_LOOK)
    assert decisions[:3] == [
        Disconnect(A, "silent for 5 s"),
        Moved(RequestId("r"), "silent", Origin("host-a1", "llama")),
        Send(B, start("r")),
    ]


def test_a_balancer_that_was_held_up_hears_its_agents_before_it_judges_them() -> None:
    scene = with_agent(limits=LIMITS)
    scene.open("r")
    scene.say(A, piece("r"))
    assert not any(isinstance(each, Disconnect) for each in scene.after(9.0))
    assert delivered(scene.say(A, piece("r"))), "it was waiting to be read"
    assert not any(isinstance(each, Disconnect) for each in scene.after(4.9))


def test_reading_what_waited_may_take_long_and_costs_no_agent() -> None:
    scene = with_agent(limits=LIMITS)
    scene.join(B, hello("b"))
    scene.after(60.0)
    scene.now += 2 * SECOND_LOOK
    assert scene.fleet.agent_said(A, Heartbeat(), scene.now) == [], "B's words come next"
    assert scene.fleet.agent_heard(B, scene.now) == []
    scene.after(0.0)
    assert seen(scene.fleet).totals().num_agents == 2


def test_who_says_nothing_is_lost_though_others_speak() -> None:
    scene = with_agent(limits=LIMITS)
    scene.join(B, hello("b"))
    scene.after(60.0)
    scene.fleet.agent_said(A, Heartbeat(), scene.now)
    assert scene.after(SECOND_LOOK) == [Disconnect(B, "silent for 5 s")]


def test_a_part_of_a_message_is_a_sign_of_life() -> None:
    scene = with_agent(limits=LIMITS)
    for _ in range(10):
        scene.after(4.0)
        scene.fleet.agent_heard(A, scene.now)
    assert seen(scene.fleet).totals().num_agents == 1
    assert scene.fleet.agent_heard(B, scene.now) == [], "a link that is not here"


@pytest.mark.parametrize("word", [Heartbeat(), output(), status(), Statistics()])
def test_any_word_is_a_sign_of_life(word: Heartbeat) -> None:
    scene = with_agent(limits=LIMITS)
    for _ in range(10):
        scene.after(4.0)
        scene.fleet.agent_said(A, word, scene.now)
    assert seen(scene.fleet).totals().num_agents == 1


def test_what_an_engine_did_is_seen_and_changes_nothing_else() -> None:
    scene = with_agent()
    assert seen(scene.fleet, scene.now).view().agents[0].statistics is None
    for said in (Statistics(num_running=1), Statistics(num_running=2)):
        revision = scene.fleet.revision
        assert scene.fleet.agent_said(A, said, scene.now) == []
        assert seen(scene.fleet, scene.now).view().agents[0].statistics == said
        assert scene.fleet.revision > revision, "those who watch hear of it"


def test_agents_lost_together_pass_nothing_on_to_each_other() -> None:
    scene = Scene(LIMITS)
    for i in range(10):
        scene.join(LinkId(i), hello(f"a{i}"))
    scene.open("1", "2")
    scene.after(5.0)
    decisions = scene.after(SECOND_LOOK)
    assert len([each for each in decisions if isinstance(each, Disconnect)]) == 10
    assert sent(decisions) == []
    assert seen(scene.fleet).totals().queue_depth == 2


def test_we_say_something_when_there_was_nothing_to_say() -> None:
    scene = with_agent(limits=LIMITS)
    assert scene.after(0.5) == []
    scene.open("r")
    assert scene.after(0.5) == [], "the start was a sign of life"
    assert scene.after(0.5) == [Send(A, Heartbeat())]


def test_why_an_agent_went() -> None:
    scene = Scene(LIMITS)
    names = ("drained", "asked", "hung", "broke", "silent")
    for number, name in enumerate(names):
        scene.join(LinkId(number), hello(name))
    scene.fleet.cordon(AgentId("drained"), None, scene.now)
    scene.fleet.agent_said(LinkId(1), status(accepting=False), scene.now)
    scene.leave(LinkId(0))
    scene.leave(LinkId(1))
    scene.leave(LinkId(2), hung_up=True)
    scene.leave(LinkId(3))
    scene.after(LIMITS.heartbeat_timeout + 1)
    scene.after(SECOND_LOOK)
    views = seen(scene.fleet)
    whys = [views.departure_of(AgentId(name)) for name in (*names, "nobody")]
    assert whys == ["drained", "stopped", "stopped", "lost", "lost", None]


def test_an_agent_is_up_since_it_came_also_where_it_loaded_another_model() -> None:
    scene = with_agent()

    def up() -> float:
        [agent] = seen(scene.fleet, scene.now).view().agents
        return agent.connected_seconds

    scene.now += 50
    scene.join(B, hello("a1", takes_over=True))
    assert up() == 50
    scene.leave(A)
    scene.leave(B)
    scene.now += RETURNED
    scene.join(LinkId(3), hello("a1"))
    assert up() == 50 + RETURNED
    scene.leave(LinkId(3))
    scene.now += RETURNED + 1
    scene.join(LinkId(4), hello("a1"))
    assert up() == 0


def test_the_past_of_devices_goes_with_their_host() -> None:
    scene = with_agent()
    past = scene.fleet.state.device_past
    cpu = DeviceMemory(name="CPU", kind="cpu", total=2, free=1)
    scene.fleet.agent_said(A, Statistics(devices=(cpu,)), scene.now)
    host = scene.fleet.state.registry[A].host
    [[point]] = seen(scene.fleet, scene.now).device_past(host).values()
    assert point.values == (1, None, None)
    scene.leave(A)
    assert seen(scene.fleet, scene.now).device_past(host) == {}, "it is not here"
    scene.join(B, hello("other"))
    later = scene.now + RETURNED + 1
    scene.fleet.agent_said(B, Statistics(devices=(cpu,)), later)
    assert past.num_hosts == 1
