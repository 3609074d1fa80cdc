"""Answers move between an engine and a server of the same model, and read as one's alone."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import CUT_ANYWHERE, LONG_CONTEXT, plain_cases
from integration_tests.daemons import Daemon, Fleet
from integration_tests.fleet_behind_fleet import Fleets, forwarding, post
from integration_tests.folding import events_of
from integration_tests.mixed_requests import MODEL, QUESTION, case_with
from integration_tests.pace import Pace

pytestmark = pytest.mark.asyncio(loop_scope="module")

GENERATE = "/api/v1/generate"
CHAT = "/v1/chat/completions"
SLOTS = 8
MARGIN = 40
"""Steps. Some prompts take more of them than others, and not every token is a piece of a chat."""

OTHER = {"engine": "server", "server": "engine"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleets() -> AsyncIterator[Fleets]:
    """The outer one's agents are those of `Sides`."""
    async with AsyncExitStack() as stack:
        inner, outer = Fleet(stack), Fleet(stack)
        for fleet in (inner, outer):
            await fleet.open_client()
            await fleet.start_balancer()
        await inner.start_agent(context_size=LONG_CONTEXT, slots=SLOTS)
        yield Fleets(inner, outer)


class Sides:
    """In the outer fleet, an agent with an engine and one that forwards to the inner fleet."""

    def __init__(self, fleets: Fleets, stack: AsyncExitStack) -> None:
        self._inner = fleets.inner
        self.fleet = fleets.outer.guest(stack)
        self.agents: dict[str, Daemon] = {}

    async def fill(self) -> None:
        """Start what is missing."""
        if "engine" not in self.agents:
            engine = await self.fleet.start_agent(context_size=LONG_CONTEXT, slots=SLOTS)
            self.agents["engine"] = engine
        if "server" not in self.agents:
            server = await forwarding(self.fleet, self._inner.inference, slots=SLOTS)
            self.agents["server"] = server

    @asynccontextmanager
    async def held(self, side: str) -> AsyncIterator[tuple[Fleet, Pace]]:
        """The fleet whose engine computes for this side, and its pace: held at first."""
        fleet = self.fleet if side == "engine" else self._inner
        agent = self.agents["engine"] if side == "engine" else self._inner.agents[0]
        await agent.pace.hold()
        yield fleet, agent.pace
        await agent.pace.let_go()

    async def end(self, side: str, way: str) -> None:
        """Its agent goes at once, or gives up what it has."""
        if way == "killed":
            self.agents.pop(side).signal_all(signal.SIGKILL)
        else:
            await self.tell(side, "drain", deadline="0s")

    async def tell(self, side: str, what: str, **body: str) -> None:
        """An operator's word to the agent: `drain` or `resume`."""
        name = self.agents[side].ready["name"]
        [id] = [each["id"] for each in await self.fleet.view("agents") if each["name"] == name]
        await self.fleet.steer(id, what, **body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides(fleets: Fleets) -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        yield Sides(fleets, stack)


# ---- raw prompts


async def tokens_of(fleet: Fleet, text: str) -> list[int]:
    tokens: list[int] = (await post(fleet, "/api/v1/tokenize", {"text": text}))["tokens"]
    return tokens


async def test_a_raw_answer_is_read_alike_wherever_it_is_cut(fleets: Fleets) -> None:
    answer = await post(fleets.inner, GENERATE, {**CUT_ANYWHERE, "logprobs": True, "stream": False})
    pieces = [each["token"] for each in answer["logprobs"]]
    whole = await tokens_of(fleets.inner, answer["text"])
    asked = await tokens_of(fleets.inner, CUT_ANYWHERE["prompt"])
    assert ("".join(pieces), len(pieces)) == (answer["text"], len(whole))
    for cut in range(1, len(pieces), 9):
        said = "".join(pieces[:cut])
        assert await tokens_of(fleets.inner, said) == whole[:cut]
        assert await tokens_of(fleets.inner, CUT_ANYWHERE["prompt"] + said) == asked + whole[:cut]


@pytest.mark.parametrize(
    ("first", "way"), [("engine", "drained"), ("server", "drained"), ("server", "killed")]
)
async def test_a_raw_prompt(fleets: Fleets, sides: Sides, first: str, way: str) -> None:
    expected = await post(fleets.inner, GENERATE, {**CUT_ANYWHERE, "stream": False})
    await sides.fill()
    await sides.tell(OTHER[first], "drain")
    url = sides.fleet.inference + GENERATE
    async with sides.held(first) as (_, pace):
        await pace.hand_out(40)
        async with sides.fleet.http.post(url, json=CUT_ANYWHERE) as answer:
            told = [await answer.content.readline()]
            await sides.tell(OTHER[first], "resume")
            told += [await pace.step_until(answer.content.readline()) for _ in range(19)]
            await sides.end(first, way)
            told += [line async for line in answer.content]
    if way == "drained":
        await sides.tell(first, "resume")
    *events, end = map(json.loads, told)
    assert "error" not in end, end
    assert (end["finish_reason"], end["timings"]["moves"]) == ("length", 1)
    assert end["usage"]["completion_tokens"] == 400
    assert "".join(each.get("text", "") for each in events) == expected["text"]


# ---- chats


@dataclass
class Chat:
    """A streamed answer. `is_due` is set once `cut` pieces of it have come."""

    cut: int = 0
    ids: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    end: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    is_due: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, fleet: Fleet, body: dict[str, Any]) -> None:
        async with fleet.http.post(fleet.inference + CHAT, json=body) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                for event in events_of([line.decode()]):
                    self._take(event)

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.end = chunk["error"]["code"]
            return
        self.ids.add(chunk["id"])
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            self.end = choice["finish_reason"] or self.end
            self.calls += delta.get("tool_calls") or ()
            self.texts += filter(None, [delta.get("content")])
            self.reasoning += filter(None, [delta.get("reasoning_content")])
        if len(self.texts) + len(self.reasoning) + len(self.calls) >= self.cut:
            self.is_due.set()

    @property
    def whole(self) -> tuple[object, ...]:
        """What the client has in the end, without ids."""
        calls: dict[int, str] = {}
        for each in self.calls:
            function = each["function"]
            more = function.get("name", "") + function.get("arguments", "")
            calls[each["index"]] = calls.get(each["index"], "") + more
        counts = [self.usage.get(f"{name}_tokens") for name in ("prompt", "completion")]
        return ("".join(self.texts), "".join(self.reasoning), calls, self.end, *counts)


def chat(messages: Any, **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": messages, "temperature": 0, "stream": True}
    return body | {"stream_options": {"include_usage": True}} | more


def texts() -> list[dict[str, Any]]:
    """The longest answers, some of which may have fewer tokens, or tools that are not called."""
    by_answer = {case.answer: case.body["messages"] for case in plain_cases()}
    tools = case_with(calls=True, reasoning=False).body["tools"]
    plain = [chat(by_answer[answer]) for answer in sorted(by_answer, key=len)[-4:]]
    return [*plain, plain[0] | {"max_tokens": 150}, plain[1] | {"tools": tools}]


def others() -> list[dict[str, Any]]:
    """A call, constrained JSON, and reasoning, all of them long."""
    count = {"minItems": 60, "maxItems": 60}
    numbers = {"type": "array", "items": {"type": "integer"}, **count}
    shape = {"type": "object", "properties": {"numbers": numbers}, "required": ["numbers"]}
    tool = {"type": "function", "function": {"name": "count", "parameters": shape}}
    schema = {"type": "json_schema", "json_schema": {"name": "numbers", "schema": numbers}}
    thinking = case_with(calls=False, reasoning=True)
    return [
        chat(QUESTION, tools=[tool], tool_choice="required"),
        chat(QUESTION, response_format=schema),
        chat(thinking.body["messages"], reasoning_effort="medium"),
    ]


async def answers(fleet: Fleet, bodies: list[dict[str, Any]], chats: list[Chat]) -> list[Chat]:
    reading = (each.read(fleet, body) for each, body in zip(chats, bodies, strict=True))
    await asyncio.gather(*reading)
    return chats


@asynccontextmanager
async def begun(
    sides: Sides, first: str, bodies: list[dict[str, Any]], cut: int
) -> AsyncIterator[list[Chat]]:
    """Inside, all of them run at `first`, whose engine is held again, `cut` pieces of each have
    come, and the other agent is there; afterwards all have ended."""
    await sides.fill()
    await sides.tell(OTHER[first], "drain")
    chats = [Chat(cut) for _ in bodies]
    async with sides.held(first) as (computing, pace):
        answering = asyncio.create_task(answers(sides.fleet, bodies, chats))
        await computing.until_in_engines(len(bodies))
        await pace.hand_out(cut + MARGIN)
        for each in chats:
            await pace.step_until(each.is_due.wait())
        await sides.tell(OTHER[first], "resume")
        yield chats
        await answering


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_texts(fleets: Fleets) -> list[Chat]:
    """The answers to `texts()` that nothing has cut."""
    return await answers(fleets.inner, texts(), [Chat() for _ in texts()])


@pytest.mark.parametrize(("first", "cut"), [("engine", 60), ("engine", 1), ("server", 20)])
async def test_a_chat(sides: Sides, whole_texts: list[Chat], first: str, cut: int) -> None:
    async with begun(sides, first, texts(), cut) as chats:
        await sides.end(first, "killed")
    for moved, whole in zip(chats, whole_texts, strict=True):
        assert moved.whole == whole.whole
        assert len(moved.ids) == 1


async def test_more_than_text_waits_for_another_engine(fleets: Fleets, sides: Sides) -> None:
    bodies = others()
    expected = await answers(fleets.inner, bodies, [Chat() for _ in bodies])
    async with begun(sides, "engine", bodies, cut=2) as chats:
        await sides.end("engine", "killed")
        await sides.fleet.until_num_requests(len(bodies), "queued")
        await sides.fill()
    for moved, whole in zip(chats, expected, strict=True):
        assert moved.whole == whole.whole
        assert len(moved.ids) == 1


async def test_more_than_text_ends_with_its_server(fleets: Fleets, sides: Sides) -> None:
    bodies = others()
    async with begun(sides, "server", bodies, cut=2) as chats:
        await sides.end("server", "killed")
    assert [each.end for each in chats] == ["agent_lost"] * len(bodies)
