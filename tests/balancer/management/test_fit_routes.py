"""What hosts would choose for a model, over REST."""

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.runtime import fleet_runtime
from arriero.balancer.fleet.runtime.fleet_runtime import MAX_FITS, FleetRuntime
from arriero.balancer.management.fit_routes import FitQuery, fit_query
from arriero.shared.errors import InvalidRequest
from arriero.shared.messages import FitRead, FromBalancer, Issue, ReadFit, Withdraw
from arriero.shared.models.assignments import HostFacts
from arriero.shared.reports.model_info import ModelFit
from tests.balancer.management.peers import Peer
from tests.waiting import HANGS

PATH = "/api/v1/models/fit"
SOURCE = "hf://org/repo:Q4_K_M"
FIT = ModelFit(
    said="28 layers in memory",
    file_bytes=5_000,
    slots=4,
    context_size=8192,
    cells=8192,
    cache_type_k="f16",
    cache_type_v="f16",
)
ANSWERS = HostFacts(answers_fit=True)


class Chooser(Peer):
    """An agent that answers with `fit` or `issue`, or not at all."""

    def __init__(
        self,
        runtime: FleetRuntime,
        name: str,
        *,
        fit: ModelFit | None = None,
        issue: Issue | None = None,
        host: str | None = None,
    ) -> None:
        self.fit, self.issue = fit, issue
        self.questions: asyncio.Queue[ReadFit] = asyncio.Queue()
        super().__init__(runtime, name, facts=ANSWERS, host=host)

    def send(self, message: FromBalancer) -> None:
        super().send(message)
        if isinstance(message, ReadFit):
            self.questions.put_nowait(message)
            read = FitRead(id=message.id, fit=self.fit, issue=self.issue)
            if self.fit or self.issue:
                asyncio.get_running_loop().call_soon(self._runtime.agent_said, self._link, read)


async def ask(client: TestClient, **query: str) -> tuple[int, Any]:
    async with client.get(PATH, params={"source": SOURCE, **query}) as response:
        return response.status, await response.json()


async def by_name(client: TestClient, **query: str) -> dict[str, Any]:
    status, body = await ask(client, **query)
    assert (status, body["source"]) == (200, SOURCE)
    return {each["name"]: each for each in body["agents"]}


async def test_each_host_says_what_it_would_choose(
    client: TestClient, runtime: FleetRuntime
) -> None:
    agent = Chooser(runtime, "a", fit=FIT)
    Chooser(runtime, "b", issue=Issue(code="gated", message="no", hint="set HF_TOKEN"))
    found = await by_name(client, slots="2", context_size="auto")
    assert found["a"]["agent"] == "id-a"
    assert (found["a"]["issue"], found["a"]["fit"]["said"]) == (None, "28 layers in memory")
    assert (found["b"]["fit"], found["b"]["issue"]["code"]) == (None, "gated")
    question = agent.questions.get_nowait()
    assert (question.source, question.slots, question.context_size) == (SOURCE, 2, "auto")


async def test_without_agents_there_is_nothing_to_say(client: TestClient) -> None:
    assert await by_name(client) == {}


async def test_an_agent_that_does_not_know_the_question_is_not_asked(
    client: TestClient, runtime: FleetRuntime
) -> None:
    Chooser(runtime, "a", fit=FIT)
    old = Peer(runtime, "old")
    found = await by_name(client)
    assert found["old"]["issue"]["code"] == "not_supported"
    assert not any(isinstance(each, ReadFit) for each in old.messages)
    assert found["a"]["fit"] is not None


async def test_an_agent_that_says_nothing_is_not_waited_for_for_ever(
    client: TestClient, runtime: FleetRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_runtime, "FIT_PATIENCE", 0.01)
    silent = Chooser(runtime, "silent")
    found = await by_name(client)
    assert found["silent"]["issue"]["message"] == "the agent did not answer within 0.01 s"
    assert isinstance(silent.messages[-1], Withdraw)


async def test_an_agent_that_goes(client: TestClient, runtime: FleetRuntime) -> None:
    agent = Chooser(runtime, "a")
    asking = asyncio.create_task(by_name(client))
    async with asyncio.timeout(HANGS):
        await agent.questions.get()
        agent.leave()
        assert (await asking)["a"]["issue"]["code"] == "not_found"


async def test_a_host_whose_link_is_lost_is_asked_over_another(
    client: TestClient, runtime: FleetRuntime
) -> None:
    first = Chooser(runtime, "a", host="h")
    Chooser(runtime, "b", fit=FIT, host="h")
    asking = asyncio.create_task(by_name(client))
    async with asyncio.timeout(HANGS):
        await first.questions.get()
        first.leave()
        [found] = (await asking).values()
    assert (found["agent"], found["issue"]) == ("h", None)


async def test_questions_are_bounded(client: TestClient, runtime: FleetRuntime) -> None:
    agent = Chooser(runtime, "a")
    asking = [asyncio.create_task(by_name(client)) for _ in range(MAX_FITS)]
    async with asyncio.timeout(HANGS):
        for _ in asking:
            await agent.questions.get()
        status, body = await ask(client)
        assert (status, body["error"]["code"]) == (429, "rate_limited")
        agent.leave()
        await asyncio.gather(*asking)
    assert await by_name(client) == {}


def test_a_query() -> None:
    assert fit_query({"source": SOURCE}, ()) == FitQuery(source=SOURCE)
    query = {"source": "http://files.lan/m.gguf", "slots": "8", "context_size": "4096"}
    found = fit_query(query, ("files.lan",))
    assert (found.slots, found.context_size) == (8, 4096)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "source"),
        ({"source": "llama3"}, "source"),
        ({"source": "http://files.lan/m.gguf"}, "source"),
        ({"source": SOURCE, "slots": "0"}, "slots"),
        ({"source": SOURCE, "slots": "many"}, "slots"),
        ({"source": SOURCE, "context_size": "8"}, "context_size"),
        ({"source": SOURCE, "quantisation": "Q8_0"}, "quantisation"),
    ],
)
def test_a_query_that_is_none(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fit_query(query, ())
    assert caught.value.field == field
    assert f"`{field}`" in caught.value.message
