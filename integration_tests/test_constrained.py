"""Constrained answers: grammars, schemas and forced calls."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel, ConfigDict, Field

from integration_tests.corpus import cases, generate
from integration_tests.daemons import DEADLINE, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "arriero-demo"
SCHEMA = {
    "type": "object",
    "properties": {
        "subject": {"type": "string", "maxLength": 30},
        "kind": {"enum": ["process", "file", "idea"]},
        "parts": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["subject", "kind", "parts"],
    "additionalProperties": False,
}
WANTED = {"type": "json_schema", "schema": SCHEMA}
YES_OR_NO = {"type": "gbnf", "grammar": 'root ::= "yes" | "no"'}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_metric",
            "parameters": {
                "type": "object",
                "properties": {"name": {"enum": ["busy_slots", "queue_length"]}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "list_agents"}},
]
PROSE = [
    case.body["messages"]
    for case in cases()
    if "tools" not in case.body and "messages" in case.body and not case.reasoning
][:6]


class Fact(BaseModel):
    model_config = ConfigDict(extra="forbid")

    subject: str = Field(max_length=40)
    is_true: bool


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{shared_fleet.inference}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


async def ask(fleet: Fleet, **body: Any) -> Any:
    return await generate(fleet.http, fleet.inference, {"temperature": 0, **body})


async def test_who_would_write_prose_writes_what_the_schema_says(shared_fleet: Fleet) -> None:
    """All at once, so that constrained and free sequences share their steps."""
    free = [ask(shared_fleet, messages=each) for each in PROSE]
    held = [ask(shared_fleet, messages=each, grammar=WANTED, max_tokens=300) for each in PROSE]
    answers = await asyncio.gather(*free, *held)
    for answer in answers[: len(PROSE)]:
        assert not answer.text.startswith("{")
    for answer in answers[len(PROSE) :]:
        assert answer.end["finish_reason"] == "stop"
        jsonschema.validate(json.loads(answer.text), SCHEMA)


async def test_free_answers_are_the_same_beside_constrained_ones(shared_fleet: Fleet) -> None:
    alone = await ask(shared_fleet, messages=PROSE[0])
    beside, *_ = await asyncio.gather(
        ask(shared_fleet, messages=PROSE[0]),
        *(ask(shared_fleet, messages=each, grammar=YES_OR_NO) for each in PROSE[1:4]),
    )
    assert beside.text == alone.text


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.5, "seed": 4}])
async def test_grammars_and_regular_expressions(shared_fleet: Fleet, sampling: Any) -> None:
    answer = await ask(shared_fleet, prompt="Is it?", grammar=YES_OR_NO, **sampling)
    assert answer.text in ("yes", "no")
    pattern = "[a-z]{2,8}( [a-z]{2,8}){2}"
    regex = {"type": "regex", "pattern": pattern}
    answer = await ask(shared_fleet, prompt="Words:", grammar=regex, **sampling)
    assert re.fullmatch(pattern, answer.text)
    assert answer.end["finish_reason"] == "stop"


async def test_it_may_be_cut_short(shared_fleet: Fleet) -> None:
    answer = await ask(shared_fleet, messages=PROSE[0], grammar=WANTED, max_tokens=3)
    assert answer.end["finish_reason"] == "length"
    assert answer.text.startswith("{")


async def test_after_reasoning(shared_fleet: Fleet) -> None:
    case = next(case for case in cases() if case.reasoning and not case.calls)
    answer = await ask(shared_fleet, **case.body, grammar=WANTED, max_tokens=600)
    assert answer.reasoning == case.reasoning
    jsonschema.validate(json.loads(answer.text), SCHEMA)


async def test_two_that_share_a_prompt_go_their_own_ways(shared_fleet: Fleet) -> None:
    """With one grammar in one step; what each said is its own."""
    answers = await asyncio.gather(
        *(
            ask(shared_fleet, messages=PROSE[0], grammar=WANTED, temperature=1.2, seed=seed)
            for seed in range(4)
        )
    )
    texts = [answer.text for answer in answers if answer.end["finish_reason"] == "stop"]
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(texts)) > 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"grammar": {"type": "regex", "pattern": "(a"}}, "grammar.pattern"),
        ({"grammar": {"type": "gbnf", "grammar": "root ::= item"}}, "grammar.grammar"),
        (
            {
                "grammar": {
                    "type": "json_schema",
                    "schema": {"type": "object", "properties": {"a": {"type": "text"}}},
                }
            },
            "grammar.schema.properties.a",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"name": "never"}}, "tool_choice"),
        ({"grammar": YES_OR_NO, "ignore_eos": True}, "ignore_eos"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_place(
    shared_fleet: Fleet, body: Any, field: str
) -> None:
    url = f"{shared_fleet.inference}/api/v1/generate"
    async with shared_fleet.http.post(url, json={"messages": PROSE[0], **body}) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert (error["code"], error["field"]) == ("invalid_request", field)
    assert f"`{field}`" in error["message"]


# ---- OpenAI's client


async def test_parsed_answers(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(
        model=MODEL, messages=PROSE[0], response_format=Fact, temperature=0, max_tokens=200
    )
    assert isinstance(answer.choices[0].message.parsed, Fact)


async def test_streamed_answers(client: openai.AsyncOpenAI, shared_fleet: Fleet) -> None:
    """Held after its first token, an answer comes in at least two pieces."""
    await shared_fleet.hold()
    begun = asyncio.create_task(shared_fleet.until_streaming(1))
    async with client.chat.completions.stream(
        model=MODEL, messages=PROSE[1], response_format=Fact, temperature=0, max_tokens=200
    ) as stream:
        await begun
        pieces = []
        async for event in stream:
            if event.type == "chunk" and event.chunk.choices:
                pieces.append(event.chunk.choices[0].delta.content or "")
            if any(pieces):
                await shared_fleet.let_go()
        final = await stream.get_final_completion()
    assert sum(map(bool, pieces)) > 1
    assert "".join(pieces) == final.choices[0].message.content
    assert isinstance(final.choices[0].message.parsed, Fact)


async def test_any_object(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=PROSE[0],
        n=2,
        response_format={"type": "json_object"},
        temperature=0,
        max_tokens=200,
    )
    for choice in answer.choices:
        assert choice.message.content is not None
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)


async def test_a_wrong_schema_is_told_as_openai_tells_it(client: openai.AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "not": {}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(
            model=MODEL,
            messages=PROSE[0],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": schema, "strict": True},
            },
        )
    assert caught.value.param == "response_format.json_schema.schema.properties.a"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_metric", "list_agents"}),
        ({"type": "function", "function": {"name": "list_agents"}}, {"list_agents"}),
        ({"type": "function", "function": {"name": "get_metric"}}, {"get_metric"}),
    ],
)
async def test_calls_that_have_to_be_made(
    client: openai.AsyncOpenAI, choice: Any, names: set[str], is_streamed: bool
) -> None:
    asked: Any = {
        "model": MODEL,
        "messages": PROSE[2],
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": 0,
    }
    if is_streamed:
        async with client.chat.completions.stream(**asked) as stream:
            answer: Any = await stream.get_final_completion()
    else:
        answer = await client.chat.completions.create(**asked)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert not answer.choices[0].message.content
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name in names
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_metric":
        jsonschema.validate(arguments, TOOLS[0]["function"]["parameters"])  # type: ignore[index]
    else:
        assert arguments == {}


async def test_at_most_one_call_says_what_it_would(client: openai.AsyncOpenAI) -> None:
    case = next(case for case in cases() if len(case.calls) == 1 and not case.reasoning)
    answer = await client.chat.completions.create(
        model=MODEL, **case.body, parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls or ()
    assert case.calls == (
        {"name": call.function.name, "arguments": call.function.arguments},  # type: ignore[union-attr]
    )
