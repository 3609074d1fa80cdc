"""Anthropic's clients for Node and Python against a fleet whose balancer restarts on the way."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
import pytest_asyncio
from anthropic.types.beta import BetaMemoryTool20250818Command
from pydantic import BaseModel, TypeAdapter

from integration_tests.corpus import cases, plain_cases
from integration_tests.daemons import DEADLINE, Daemon, Fleet, started_fleet, until
from integration_tests.installed import installed, node_clients
from integration_tests.test_messages import _answered, asked, connected

SCRIPT = Path(__file__).parent / "node" / "anthropic_client.mjs"

PLAIN = plain_cases()[3]
CALLING = next(
    case
    for case in cases()
    if case.calls and not case.reasoning and len(case.body["messages"]) == 1
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # the first test may have to install Node
]

_command: TypeAdapter[Any] = TypeAdapter(BetaMemoryTool20250818Command)


class Verdict(BaseModel):
    """What an answer is held to."""

    ok: bool


def calling_body() -> dict[str, Any]:
    """The body of a conversation in which the model calls its only tool."""
    body = asked(CALLING)
    name = CALLING.calls[0]["name"]
    return {**body, "tools": [tool for tool in body["tools"] if tool["name"] == name]}


def flat(body: dict[str, Any]) -> dict[str, Any]:
    """Without the Python client's own parameter."""
    return {**body, **body.pop("extra_body")}


class Threaded:
    """Python's tool runner, one request after the other; `sent` tells of each."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self.sent: list[dict[str, Any]] = []
        client._client.event_hooks["response"].append(self._note)
        body = calling_body()
        (definition,) = body.pop("tools")
        tool = anthropic.beta_async_tool(_answered, **definition)
        self._messages = aiter(
            client.beta.messages.tool_runner(**body, tools=[tool], max_iterations=2)
        )
        self.ids: list[str] = []

    async def _note(self, response: httpx.Response) -> None:
        body = json.loads(response.request.content)
        self.sent.append(
            {
                "status": response.status_code,
                "thread": body["thread"]["type"],
                "messages": len(body["messages"]),
                "tools": len(body.get("tools", [])) or None,
                "threadId": body["thread"].get("previous_message_id"),
            }
        )

    async def turn(self) -> None:
        self.ids.append((await anext(self._messages)).id)

    @property
    def told(self) -> dict[str, Any]:
        return {"ids": self.ids, "sent": self.sent}


async def started(fleet: Fleet, full: Daemon, folder: Path) -> asyncio.subprocess.Process:
    """The Node client's script with its questions."""
    node = await asyncio.to_thread(installed, "node")
    clients = await asyncio.to_thread(node_clients)
    # A module's imports are looked for beside it.
    (folder / "node_modules").symlink_to(clients / "node_modules")
    questions = {
        "chat": flat(asked(PLAIN)),
        "calling": flat(calling_body()),
        "schema": Verdict.model_json_schema() | {"additionalProperties": False},
    }
    return await asyncio.create_subprocess_exec(
        node,
        shutil.copy(SCRIPT, folder),
        fleet.inference,
        f"http://{full.ready['inference']}",
        json.dumps(questions),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def restarted(fleet: Fleet) -> None:
    """The balancer forgets its threads; the agent comes back to it."""
    assert await fleet.balancer.terminate() == 0
    await fleet.restart_balancer()

    async def is_ready() -> bool:
        async with fleet.http.get(f"{fleet.inference}/ready") as response:
            return response.status == 200

    await until(is_ready)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own_fleet() -> AsyncIterator[Fleet]:
    """A fleet of their own: its balancer restarts."""
    async with started_fleet(context_size=2048) as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(
    own_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Any]]:
    """What both clients tell. The balancer restarts while both are in the middle of a thread."""
    flags = ("--inference-addr", "127.0.0.1:0", "--management-addr", "127.0.0.1:0")
    full = await own_fleet.start("balancer", *flags, "--max-buffered-requests", "0")
    await full.until_ready()
    process = await started(own_fleet, full, tmp_path_factory.mktemp("node"))
    assert process.stdin is not None
    assert process.stdout is not None
    async with connected(own_fleet) as client:
        python = Threaded(client)
        await python.turn()
        async with asyncio.timeout(DEADLINE):
            line = await process.stdout.readline()
        if line != b"waiting\n":
            _, errors = await process.communicate()
            pytest.fail(errors.decode())
        await restarted(own_fleet)
        await python.turn()
    async with asyncio.timeout(DEADLINE):
        output, errors = await process.communicate(b"\n")
    assert process.returncode == 0, errors.decode()
    yield {**json.loads(output), "python": python.told}


async def test_an_answer(told: dict[str, Any]) -> None:
    for message in (told["message"], told["streamed"]["message"]):
        assert [block["text"] for block in message["content"]] == [PLAIN.answer]
        assert message["stop_reason"] == "end_turn"
    assert told["streamed"]["joined"] == PLAIN.answer


async def test_a_count(told: dict[str, Any]) -> None:
    usage = told["message"]["usage"]
    cached = usage["cache_read_input_tokens"]
    assert told["counted"]["input_tokens"] == usage["input_tokens"] + cached


async def test_an_answer_as_a_schema_has_it(told: dict[str, Any]) -> None:
    assert Verdict.model_validate(told["parsed"]["parsed_output"])


async def test_an_answer_as_a_schema_has_it_in_python(own_fleet: Fleet) -> None:
    async with connected(own_fleet) as client:
        parsed = await client.messages.parse(**asked(PLAIN), output_format=Verdict)
        beta = {"type": "json_schema", "schema": Verdict.model_json_schema()}
        older = await client.messages.create(
            **{**asked(PLAIN), "extra_body": {"temperature": 0, "output_format": beta}}
        )
    assert isinstance(parsed.parsed_output, Verdict)
    (block,) = older.content
    assert block.type == "text"
    assert Verdict.model_validate_json(block.text) == parsed.parsed_output


@pytest.mark.parametrize("client", ["threaded", "python"], ids=["node", "python"])
async def test_a_lost_thread_is_sent_again(told: dict[str, Any], client: str) -> None:
    """The store was emptied by the restart; the client repeats the whole conversation by itself."""
    first, lost, again = told[client]["sent"]
    assert [each["status"] for each in (first, lost, again)] == [200, 404, 200]
    assert [each["thread"] for each in (first, lost, again)] == ["create", "continue", "create"]
    assert [each["messages"] for each in (first, lost, again)] == [1, 1, 3]
    assert lost["threadId"] == told[client]["ids"][0]
    assert (lost.get("tools"), again.get("tools")) == (None, 1)
    assert len(told[client]["ids"]) == 2


async def test_a_summary(told: dict[str, Any]) -> None:
    (block,) = told["compacted"]["content"]
    assert block["type"] == "compaction"
    assert told["compacted"]["stop_reason"] in ("compaction", "max_tokens")


async def test_a_full_queue_is_tried_again(told: dict[str, Any]) -> None:
    error = told["overloaded"]
    assert (error["status"], error["type"], error["attempts"]) == (529, "overloaded_error", 2)
    assert error["hasId"]


async def test_refusals_are_not_tried_again(told: dict[str, Any]) -> None:
    missing, image = told["missing"], told["image"]
    assert (missing["name"], missing["type"]) == ("NotFoundError", "not_found_error")
    assert (image["name"], image["type"]) == ("BadRequestError", "invalid_request_error")
    assert "`messages[0].content[0].source.type`: 'url'" in image["message"]
    for each in (missing, image):
        assert (each["attempts"], each["hasId"]) == (1, True)


async def test_a_tool_runner_goes_on_from_a_summary(own_fleet: Fleet) -> None:
    body = calling_body()
    (definition,) = body.pop("tools")
    tool = anthropic.beta_async_tool(_answered, **definition)
    told = []
    async with connected(own_fleet) as client:
        runner = client.beta.messages.tool_runner(**body, tools=[tool], max_iterations=3)
        async for message in runner:
            told.append((message.stop_reason, [block.type for block in message.content]))
            if len(told) == 1:
                runner.compact_before_next_turn()
    assert told[:2] == [("tool_use", ["tool_use"]), ("compaction", ["compaction"])]
    assert len(told) == 3


async def test_the_memory_tools_commands_are_whole(own_fleet: Fleet) -> None:
    """The model knows the tool's input from us alone; the library reads it into its own types."""
    async with connected(own_fleet) as client:
        message = await client.beta.messages.create(
            **asked(PLAIN),
            tools=[{"type": "memory_20250818", "name": "memory"}],
            tool_choice={"type": "tool", "name": "memory"},
        )
    (call,) = message.content
    assert (call.type, message.stop_reason) == ("tool_use", "tool_use")
    assert _command.validate_python(call.input)
