"""The official `openai` client against a real fleet."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, cases, plain_cases
from integration_tests.daemons import DEADLINE, Fleet

MODEL = "arriero-demo"


pytestmark = pytest.mark.asyncio(loop_scope="session")


def connected(fleet: Fleet) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key="none", max_retries=0
    )


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with connected(shared_fleet) as client:
        yield client


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("no-such-model")


async def test_chat(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[3]
    answer = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0
    )
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == case.answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_chat_of_several_turns(client: openai.AsyncOpenAI) -> None:
    case = next(
        case
        for case in cases()
        if len(case.body["messages"]) >= 3 and not {"tools", "thinking"} & case.body.keys()
    )
    answer = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0
    )
    assert answer.choices[0].message.content == case.answer


async def test_chat_streamed_with_usage(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[5]
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=case.body["messages"],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == case.answer
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) == {None}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_chat_n(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[0]
    answer = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0, n=3
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {case.answer}
    assert answer.usage is not None
    one = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0
    )
    assert one.usage is not None
    assert answer.usage.completion_tokens == 3 * one.usage.completion_tokens


async def test_completions_of_several_prompts(client: openai.AsyncOpenAI) -> None:
    chosen = plain_cases()[:3]
    prompts = [
        f"<|im_start|>user\n{case.body['messages'][0]['content']}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        for case in chosen
    ]
    answer = await client.completions.create(model=MODEL, prompt=prompts, temperature=0)
    assert [choice.text for choice in answer.choices] == [case.answer for case in chosen]

    streamed = ["", "", ""]
    stream = await client.completions.create(
        model=MODEL, prompt=prompts, temperature=0, stream=True
    )
    async for chunk in stream:
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == [case.answer for case in chosen]


async def test_length_and_stop(client: openai.AsyncOpenAI) -> None:
    case = plain_cases()[0]
    short = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0, max_completion_tokens=2
    )
    assert short.choices[0].finish_reason == "length"
    word = case.answer.split()[3]
    stopped = await client.chat.completions.create(
        model=MODEL, messages=case.body["messages"], temperature=0, stop=word
    )
    assert stopped.choices[0].message.content == case.answer[: case.answer.index(word)]
    assert stopped.choices[0].finish_reason == "stop"


async def test_errors_are_openais(client: openai.AsyncOpenAI) -> None:
    messages = plain_cases()[0].body["messages"]
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="no-such-model", messages=messages)
    assert missing.value.code == "model_not_found"

    with pytest.raises(openai.BadRequestError) as bad:
        await client.chat.completions.create(model=MODEL, messages=messages, temperature=-1)
    assert bad.value.param == "temperature"

    with pytest.raises(openai.BadRequestError) as long:
        await client.completions.create(model=MODEL, prompt="the balancer " * 3000)
    assert long.value.code == "context_length_exceeded"


async def test_what_is_ignored_is_told(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=plain_cases()[0].body["messages"],
        max_tokens=1,
        safety_identifier="low",
        extra_body={"no_such_field": 1},
    )
    assert answer.headers["X-Arriero-Ignored"] == "safety_identifier, no_such_field"
    assert answer.parse().choices


async def test_closing_a_stream_frees_the_slot(long_fleet: Fleet) -> None:
    async with connected(long_fleet) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=ENDLESS["messages"],
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert await long_fleet.busy_slots() == 1
        await stream.close()
        await long_fleet.until_idle()
