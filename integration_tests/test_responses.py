"""The official `openai` client's Responses API against a real fleet."""

import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types.responses import Response

from integration_tests.corpus import LONG_CONTEXT, Case, cases, plain_cases
from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.daemons import MODEL as MODEL_FILE
from tests.balancer.api.openai.responses.strict import checked_event, checked_response

MODEL = "arriero-demo"
LONG = {"ignore_eos": True}
"""Goes on to the ceiling, which an engine that is held does not reach."""


pytestmark = pytest.mark.asyncio(loop_scope="session")


def connected(fleet: Fleet) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key="none", max_retries=0
    )


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with connected(shared_fleet) as client:
        yield client


def calling(*, thinking: bool) -> Case:
    return next(case for case in cases() if case.calls and bool(case.reasoning) == thinking)


def asked(case: Case) -> dict[str, Any]:
    """A case as the Responses API asks it."""
    body: dict[str, Any] = {"model": MODEL, "temperature": 0, "input": case.body["messages"]}
    if case.body.get("thinking"):
        body["reasoning"] = {"effort": "medium"}
    if tools := case.body.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    return body


def reasoning_of(response: Response) -> str:
    return "".join(
        part.text
        for item in response.output
        if item.type == "reasoning"
        for part in item.content or ()
    )


def calls_of(response: Response) -> tuple[dict[str, str], ...]:
    return tuple(
        {"name": item.name, "arguments": item.arguments}
        for item in response.output
        if item.type == "function_call"
    )


def check_whole(response: Response, case: Case) -> None:
    assert response.output_text == case.answer
    assert reasoning_of(response) == case.reasoning
    assert calls_of(response) == case.calls
    assert response.status == "completed"
    assert response.usage is not None
    assert bool(response.usage.output_tokens_details.reasoning_tokens) == bool(case.reasoning)


CASES = {
    "plain": lambda: plain_cases()[3],
    "thinking": lambda: next(case for case in cases() if case.reasoning and not case.calls),
    "calling": lambda: calling(thinking=False),
    "both": lambda: calling(thinking=True),
    "turns": lambda: next(
        case
        for case in cases()
        if len(case.body["messages"]) >= 3 and not {"tools", "thinking"} & case.body.keys()
    ),
}


async def test_answers_and_streams(client: openai.AsyncOpenAI) -> None:
    for name, case in ((name, find()) for name, find in CASES.items()):
        raw = await client.responses.with_raw_response.create(**asked(case))
        whole = checked_response(json.loads(raw.text))
        check_whole(whole, case)

        async with client.responses.stream(**asked(case)) as stream:
            text = "".join(
                [
                    event.delta
                    async for event in stream
                    if event.type == "response.output_text.delta"
                ]
            )
            final = await stream.get_final_response()
        assert text == case.answer, name
        check_whole(final, case)


async def test_every_event_is_one_that_the_client_knows(shared_fleet: Fleet) -> None:
    body = asked(calling(thinking=True)) | {"stream": True}
    url = f"{shared_fleet.inference}/v1/responses"
    async with shared_fleet.http.post(url, json=body) as response:
        lines = (await response.text()).splitlines()
    events = [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: ")]
    for event in events:
        checked_event(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"


async def test_a_conversation_is_kept(client: openai.AsyncOpenAI) -> None:
    """Each turn is sent alone; the answers are those of the whole conversation."""
    case = CASES["turns"]()
    questions = [each["content"] for each in case.body["messages"] if each["role"] == "user"]
    answers = [each["content"] for each in case.body["messages"] if each["role"] == "assistant"]
    previous: Response | None = None
    for question, answer in zip(questions, [*answers, case.answer], strict=True):
        previous = await client.responses.create(
            model=MODEL,
            input=question,
            temperature=0,
            previous_response_id=previous.id if previous else None,
        )
        assert previous.output_text == answer
    assert previous is not None
    assert (await client.responses.retrieve(previous.id)).output_text == case.answer
    items = await client.responses.input_items.list(previous.id)
    assert [item.content[0].text async for item in items] == [questions[-1]]  # type: ignore[union-attr]
    await client.responses.delete(previous.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(previous.id)


async def test_counting(client: openai.AsyncOpenAI) -> None:
    body = asked(CASES["both"]())
    response = await client.responses.create(**body)
    del body["temperature"]
    counted = await client.responses.input_tokens.count(**body)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens


async def test_a_call_goes_to_and_fro(client: openai.AsyncOpenAI) -> None:
    """By sending everything back, and by naming the answer before."""
    case = next(
        case
        for case in cases()
        if [m["role"] for m in case.body["messages"]] == ["user", "assistant", "tool"]
        and "tools" in case.body
        and "thinking" not in case.body
        and case.answer
    )
    question, _, result = case.body["messages"]
    first_body = asked(case) | {"input": [question]}
    first = await client.responses.create(**first_body)
    (call,) = [item for item in first.output if item.type == "function_call"]
    output = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": result["content"],
    }
    sent_back = [question, *first.output, output]
    second = await client.responses.create(**first_body | {"input": sent_back})
    assert second.output_text == case.answer
    third = await client.responses.create(
        **first_body | {"input": [output]}, previous_response_id=first.id
    )
    assert third.output_text == case.answer


async def test_an_answer_cut_off(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[0]
    body = asked(case) | {"max_output_tokens": 2}
    response = await client.responses.create(**body)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"  # type: ignore[union-attr]
    assert case.answer.startswith(response.output_text)
    stream = await client.responses.create(**body, stream=True)
    *_, last = [event async for event in stream]
    assert last.type == "response.incomplete"
    assert last.response.output_text == response.output_text


@pytest.mark.parametrize("format_type", ["json_object", "json_schema"])
async def test_an_answer_is_held_to_its_format(
    client: openai.AsyncOpenAI, format_type: str
) -> None:
    """The demo model writes no JSON by itself."""
    schema = {
        "type": "object",
        "properties": {"slots": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["slots"],
        "additionalProperties": False,
    }
    format: Any = {"type": format_type}
    if format_type == "json_schema":
        format |= {"name": "state", "schema": schema, "strict": True}
    response = await client.responses.create(
        model=MODEL, input="What is a slot?", temperature=0, text={"format": format}
    )
    value = json.loads(response.output_text)
    assert format_type == "json_object" or 1 <= value["slots"] <= 9


async def test_log_probabilities(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[0]
    response = await client.responses.create(
        **asked(case), include=["message.output_text.logprobs"], top_logprobs=2
    )
    (message,) = response.output
    assert message.type == "message" and message.content[0].type == "output_text"
    told = message.content[0].logprobs or []
    assert bytes(byte for each in told for byte in each.bytes).decode() == case.answer
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in told)
    assert all(each.top_logprobs[0].token == each.token for each in told)


async def test_a_call_can_be_forced(client: openai.AsyncOpenAI) -> None:
    tool = asked(calling(thinking=False))["tools"][0]
    choice = {"type": "function", "name": tool["name"]}
    response = await client.responses.create(
        model=MODEL, input="What is a slot?", temperature=0, tools=[tool], tool_choice=choice
    )
    assert [call["name"] for call in calls_of(response)] == [tool["name"]]


async def test_errors(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        await client.responses.create(model=MODEL, input="the balancer " * 3000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.create(model="no-such-model", input="hi")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.responses.create(model=MODEL, input="hi", previous_response_id="resp_none")
    assert unknown.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model=MODEL, input="hi", prompt={"id": "p"})
    assert refused.value.param == "prompt"
    strange = {"type": "object", "properties": {"a": {"type": "strange"}}}
    format: Any = {"type": "json_schema", "name": "n", "schema": strange}
    with pytest.raises(openai.BadRequestError) as schema:
        await client.responses.create(model=MODEL, input="hi", text={"format": format})
    assert schema.value.param == "text.format.schema.properties.a"


@pytest.mark.asyncio(loop_scope="function")
async def test_an_error_in_a_stream(fleet: Fleet, tmp_path: Path) -> None:
    # The engine does not come back, so the answer cannot go on.
    await fleet.start_balancer(buffered_request_timeout=2)
    path = shutil.copyfile(MODEL_FILE, tmp_path / MODEL_FILE.name)
    agent = await fleet.start_agent(context_size=LONG_CONTEXT, model=path)
    await agent.pace.hand_out(5)
    types: list[str] = []
    async with connected(fleet) as client:
        stream = await client.responses.create(
            model=MODEL, input="What is a slot?", stream=True, extra_body=LONG
        )
        async for event in stream:
            if event.type == "response.output_text.delta" and event.type not in types:
                path.unlink()
                agent.signal_engine(signal.SIGKILL)
            types.append(event.type)
    assert types[-2:] == ["error", "response.failed"]


async def test_a_response_in_the_background_is_picked_up(client: openai.AsyncOpenAI) -> None:
    [case, *_] = plain_cases()
    begun = await client.responses.create(**asked(case), background=True, stream=True)
    first = await anext(aiter(begun))
    assert first.type == "response.created"
    await begun.close()
    id, number = first.response.id, first.sequence_number
    events = [
        event
        async for event in await client.responses.retrieve(id, stream=True, starting_after=number)
    ]
    assert [each.sequence_number for each in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "response.completed"
    response = await client.responses.retrieve(id)
    assert response.output_text == case.answer
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == case.answer


async def test_a_response_in_the_background_is_cancelled(
    client: openai.AsyncOpenAI, shared_fleet: Fleet
) -> None:
    await shared_fleet.hold()
    begun = await client.responses.create(
        model=MODEL, input="Tell me more", background=True, extra_body=LONG
    )
    assert (await client.responses.cancel(begun.id)).status == "cancelled"
    await shared_fleet.let_go()
    await shared_fleet.until_idle()


async def test_a_request_that_is_sent_again_is_answered_once(client: openai.AsyncOpenAI) -> None:
    [case, *_] = plain_cases()
    key = {"Idempotency-Key": "a-request-that-is-sent-again"}
    answers = [
        await client.chat.completions.create(
            model=MODEL, messages=case.body["messages"], temperature=0, extra_headers=key
        )
        for _ in range(2)
    ]
    assert answers[0].id == answers[1].id
    assert {each.choices[0].message.content for each in answers} == {case.answer}
