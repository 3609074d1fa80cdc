"""What the core decides reaches streams, peers and the recorder."""

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.runtime.peer import Backlog
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import Done, Token
from arriero.shared.messages import Heartbeat, Start
from tests.balancer.fleet.builders import ended, output, piece, request
from tests.balancer.fleet.runtime.query_dispatcher import SEEDED, QueryDispatcher


async def test_an_answer_goes_from_the_agent_to_the_stream_and_the_recorder() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join()
    with dispatcher.runtime.open(request(), caller=ANONYMOUS) as stream:
        assert peer.sent[1:] == [Start(id=stream.id, request=SEEDED)]
        dispatcher.clock.now += 2.0
        dispatcher.runtime.agent_said(link, output(piece(stream.id, "Once", num_tokens=2)))
        dispatcher.clock.now += 0.5
        dispatcher.runtime.agent_said(link, output(piece(stream.id, " upon"), ended(stream.id)))
        events = [event async for event in stream]
    assert events[0] == Token("Once upon", "content", (0, 1, 0))
    assert isinstance(events[-1], Done)
    assert (dispatcher.recorder.first_tokens, dispatcher.recorder.gaps) == ([2.0], [0.5])
    assert dispatcher.recorder.counts == [2, 1]
    assert set(dispatcher.recorder.origins) == {Origin("host-a1", "llama")}
    [ending] = dispatcher.recorder.endings
    assert (ending.code, ending.agent, ending.model) == ("stop", "host-a1", "llama")


async def test_an_agent_that_is_dismissed_is_disconnected_and_forgotten() -> None:
    dispatcher = QueryDispatcher(Limits(heartbeat_timeout=5.0))
    link, peer = dispatcher.join()
    for seconds in (5.0, SECOND_LOOK):
        dispatcher.clock.now += seconds
        dispatcher.runtime.tick()
    assert peer.reason == "silent for 5 s"
    dispatcher.runtime.agent_said(link, Heartbeat())
    dispatcher.runtime.agent_left(link)
    assert dispatcher.runtime.totals().num_agents == 0


async def test_an_agent_whose_socket_closes_is_not_disconnected_again() -> None:
    dispatcher = QueryDispatcher()
    link, peer = dispatcher.join()
    dispatcher.runtime.agent_left(link)
    assert peer.reason is None
    assert dispatcher.runtime.view().agents == ()


async def test_what_waits_for_agents_is_added_up() -> None:
    dispatcher = QueryDispatcher()
    assert dispatcher.runtime.backlog() == Backlog()
    dispatcher.join("a1")
    link, _ = dispatcher.join("a2")
    assert dispatcher.runtime.backlog() == Backlog(num_messages=2, num_bytes=20)
    dispatcher.runtime.agent_left(link)
    assert dispatcher.runtime.backlog() == Backlog(num_messages=1, num_bytes=10)
