"""What others see of the fleet, and how they hear that it has changed."""

import asyncio
from contextlib import aclosing

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.shared.inference import AgentId
from tests.balancer.fleet.builders import request
from tests.balancer.fleet.runtime.query_dispatcher import QueryDispatcher
from tests.waiting import HANGS


async def test_watchers_look_at_once_and_then_after_each_change() -> None:
    dispatcher = QueryDispatcher()
    async with aclosing(dispatcher.runtime.changes()) as changes:
        await anext(changes)
        changed = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not changed.done(), "nothing has changed"
        dispatcher.join()
        await asyncio.wait_for(changed, HANGS)
        assert dispatcher.runtime.totals().num_agents == 1


async def test_a_change_while_the_watcher_is_away_is_not_missed() -> None:
    dispatcher = QueryDispatcher()
    async with aclosing(dispatcher.runtime.changes()) as changes:
        await anext(changes)
        dispatcher.join("a1")
        await asyncio.wait_for(anext(changes), HANGS)


async def test_what_changed_since_a_revision() -> None:
    dispatcher = QueryDispatcher()
    revision = dispatcher.runtime.revision
    dispatcher.join("a1")
    delta = dispatcher.runtime.changes_since(revision)
    assert delta is not None
    assert [agent.id for agent in delta.agents] == ["a1"]
    assert delta.revision == dispatcher.runtime.revision > revision


async def test_one_agent_and_the_oldest_requests() -> None:
    dispatcher = QueryDispatcher()
    assert dispatcher.runtime.agent(AgentId("a1")) is None
    dispatcher.join("a1")
    agent = dispatcher.runtime.agent(AgentId("a1"))
    assert agent is not None and agent.id == "a1"
    streams = [dispatcher.runtime.open(request(), caller=ANONYMOUS) for _ in range(3)]
    assert [each.id for each in dispatcher.runtime.requests()] == [each.id for each in streams]
    view = dispatcher.runtime.view(max_requests=2)
    assert [each.id for each in view.requests] == [each.id for each in streams[:2]]
    assert view.num_requests == 3
