"""Samplers and log-probabilities, natively and with the official `openai` client."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from integration_tests.corpus import plain_cases
from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.shared_fleets import SharedFleets

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "arriero-demo"
CASE = plain_cases()[3]
MESSAGES: Any = CASE.body["messages"]
PROMPT = "The balancer"


def client_of(fleet: Fleet) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{fleet.inference}/v1", api_key="none", max_retries=0
    )


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(shared_fleet) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def exact_client(fleets: SharedFleets) -> AsyncIterator[openai.AsyncOpenAI]:
    """Of an agent whose logits do not depend on where cells lie, or on what is read at once."""
    async with client_of(await fleets.with_agent(deterministic=True)) as client:
        yield client


async def chat(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, **{"temperature": 0, **options}
    )


async def complete(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.completions.create(
        **{"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 12, **options}
    )


def text_of(entries: Any) -> str:
    return b"".join(bytes(entry.bytes) for entry in entries).decode()


# ---- log-probabilities


async def test_chat_tells_those_of_its_content(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, logprobs=True, top_logprobs=3)
    (choice,) = answer.choices
    assert choice.message.content == CASE.answer
    entries = choice.logprobs.content
    assert text_of(entries) == CASE.answer
    assert choice.logprobs.refusal is None
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        # Without a temperature the likeliest is chosen.
        assert entry.top_logprobs[0].logprob == entry.logprob <= 0
        values = [top.logprob for top in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-6


async def test_a_stream_tells_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await chat(client, logprobs=True, top_logprobs=2, n=2)
    gathered: dict[int, list[Any]] = {0: [], 1: []}
    texts = {0: "", 1: ""}
    async for chunk in await chat(client, logprobs=True, top_logprobs=2, n=2, stream=True):
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.logprobs:
            gathered[choice.index] += choice.logprobs.content
            # The log-probabilities sent so far are of the text sent so far.
            assert texts[choice.index].startswith(text_of(gathered[choice.index])[:-8])
    for choice in whole.choices:
        told = [(entry.token, entry.bytes) for entry in choice.logprobs.content]
        assert [(entry.token, entry.bytes) for entry in gathered[choice.index]] == told
        assert texts[choice.index] == choice.message.content


async def test_they_are_of_the_model_not_of_what_was_done_to_it(
    client: openai.AsyncOpenAI,
) -> None:
    plain = await chat(client, logprobs=True, max_tokens=1)
    (entry,) = plain.choices[0].logprobs.content
    strange = await chat(
        client,
        logprobs=True,
        top_logprobs=1,
        max_tokens=1,
        temperature=2,
        seed=1,
        logit_bias={"300": 100},
        extra_body={"repeat_penalty": 2.0},
    )
    (forced,) = strange.choices[0].logprobs.content
    assert forced.logprob < -1
    assert forced.top_logprobs[0].logprob == pytest.approx(entry.logprob, abs=1e-3)


async def test_completions_tell_where_each_token_stands(client: openai.AsyncOpenAI) -> None:
    answer = await complete(client, logprobs=2)
    (choice,) = answer.choices
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text
    assert len(told.tokens) == answer.usage.completion_tokens > 5
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
    for token, log_prob, top in zip(
        told.tokens, told.token_logprobs, told.top_logprobs, strict=True
    ):
        assert top[token] == log_prob
        assert 2 <= len(top) <= 3
    offsets: list[int] = []
    async for chunk in await complete(client, logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            offsets += chunk.choices[0].logprobs.text_offset
    assert offsets == told.text_offset


async def test_what_a_stop_string_cut_off_is_not_told(client: openai.AsyncOpenAI) -> None:
    stop = CASE.answer[20:30]
    answer = await chat(client, logprobs=True, stop=stop)
    (choice,) = answer.choices
    kept = CASE.answer[: CASE.answer.index(stop)]
    assert choice.message.content == kept
    # The token in which the stop string begins may be reported whole.
    told = text_of(choice.logprobs.content)
    assert told.startswith(kept)
    assert len(told) < len(kept) + len(stop)


async def test_nobody_is_told_what_he_did_not_ask_for(client: openai.AsyncOpenAI) -> None:
    assert (await chat(client, max_tokens=2)).choices[0].logprobs is None
    assert (await complete(client, max_tokens=2)).choices[0].logprobs is None


async def test_the_native_api_tells_them_with_each_event(shared_fleet: Fleet) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "logprobs": True, "top_logprobs": 1}
    url = f"{shared_fleet.inference}/api/v1/generate"
    entries: list[Any] = []
    async with shared_fleet.http.post(url, json=body) as response:
        async for line in response.content:
            entries += json.loads(line).get("logprobs", ())
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == CASE.answer
    async with shared_fleet.http.post(url, json=body | {"stream": False}) as response:
        answer = await response.json()
    assert [entry["token"] for entry in answer["logprobs"]] == [e["token"] for e in entries]


# ---- samplers


@pytest.mark.parametrize(
    "samplers",
    [
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 1.0, "xtc_threshold": 0.05},
        {"dry_multiplier": 2.0, "dry_allowed_length": 1},
        {"mirostat": 1, "mirostat_tau": 3.0},
        {"mirostat": 2, "mirostat_eta": 0.5},
        {"repeat_penalty": 1.5, "repeat_last_n": 8},
    ],
)
async def test_a_seed_gives_the_same_answer_with_every_sampler(
    exact_client: openai.AsyncOpenAI, samplers: dict[str, Any]
) -> None:
    options = {"temperature": 1.0, "extra_body": samplers, "max_tokens": 8}
    answers = [await complete(exact_client, **options, seed=seed) for seed in (1, 1, 2)]
    texts = [answer.choices[0].text for answer in answers]
    assert texts[0] == texts[1] != texts[2]


async def test_dry_says_something_else_the_second_time(client: openai.AsyncOpenAI) -> None:
    said = (await complete(client)).choices[0].text
    again = {"prompt": PROMPT + said + PROMPT, "max_tokens": 1, "logprobs": 0}
    strict = {"dry_multiplier": 100, "dry_allowed_length": 1, "dry_sequence_breakers": []}
    answer = await complete(client, **again, extra_body=strict)
    assert not said.startswith(answer.choices[0].logprobs.tokens[0])


@pytest.mark.parametrize(
    ("name", "value"), [("mirostat", 3), ("typical_p", 0), ("dry_base", 0.5), ("top_n_sigma", "x")]
)
async def test_what_a_sampler_cannot_be_is_refused_by_name(
    client: openai.AsyncOpenAI, name: str, value: Any
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await complete(client, extra_body={name: value})
    assert caught.value.param == name


# ---- OpenAI's own


async def test_a_prompt_of_token_ids(client: openai.AsyncOpenAI, shared_fleet: Fleet) -> None:
    url = f"{shared_fleet.inference}/api/v1/tokenize"
    async with shared_fleet.http.post(url, json={"text": PROMPT}) as response:
        tokens = (await response.json())["tokens"]
    answer = await complete(client, prompt=tokens)
    assert answer.usage.prompt_tokens == len(tokens)
    assert answer.choices[0].text == (await complete(client)).choices[0].text
    with pytest.raises(openai.BadRequestError) as caught:
        await complete(client, prompt=[10**6])
    assert caught.value.param == "prompt[0]"


async def test_an_echo(client: openai.AsyncOpenAI) -> None:
    plain = (await complete(client)).choices[0].text
    assert (await complete(client, echo=True)).choices[0].text == PROMPT + plain
    parts = [
        chunk.choices[0].text async for chunk in await complete(client, echo=True, stream=True)
    ]
    assert "".join(parts) == PROMPT + plain


async def test_an_echo_with_log_probabilities(
    client: openai.AsyncOpenAI, shared_fleet: Fleet
) -> None:
    """As evaluation harnesses ask: how likely is this text, and is it what would be said?"""
    plain = (await complete(client, logprobs=2)).choices[0]
    whole = PROMPT + plain.text
    answer = await complete(client, prompt=whole, echo=True, logprobs=2, max_tokens=0)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (whole, "length")
    assert answer.usage.completion_tokens == answer.usage.prompt_tokens_details.cached_tokens == 0
    told = choice.logprobs
    assert len(told.tokens) == answer.usage.prompt_tokens
    assert told.token_logprobs[0] is told.top_logprobs[0] is None
    # The model generated this text, so the values must be those of its generation.
    count = len(plain.logprobs.tokens)
    assert told.tokens[-count:] == plain.logprobs.tokens
    assert told.token_logprobs[-count:] == pytest.approx(plain.logprobs.token_logprobs, abs=0.02)
    for value, top in zip(told.token_logprobs[-count:], told.top_logprobs[-count:], strict=True):
        assert value == max(top.values())

    url = f"{shared_fleet.inference}/api/v1/tokenize"
    async with shared_fleet.http.post(url, json={"text": whole}) as response:
        tokens = (await response.json())["tokens"]
    options = {"prompt": [tokens, tokens[:3]], "echo": True, "logprobs": 2}
    first, second = (await complete(client, **options, max_tokens=1)).choices
    assert first.logprobs.token_logprobs[1:-1] == pytest.approx(told.token_logprobs[1:], abs=0.02)
    assert len(second.logprobs.tokens) == 4
    parts = [chunk async for chunk in await complete(client, **options, max_tokens=1, stream=True)]
    streamed = [
        value
        for part in parts
        if part.choices[0].index == 0 and part.choices[0].logprobs
        for value in part.choices[0].logprobs.token_logprobs
    ]
    assert streamed[1:] == pytest.approx(first.logprobs.token_logprobs[1:], abs=0.02)
    assert len(streamed) == len(first.logprobs.token_logprobs)


async def test_a_prompts_log_probabilities_natively(shared_fleet: Fleet) -> None:
    body = {
        "messages": MESSAGES,
        "logprobs": True,
        "prompt_logprobs": True,
        "max_tokens": 3,
        "temperature": 0,
        "stream": False,
    }
    url = f"{shared_fleet.inference}/api/v1/generate"
    async with shared_fleet.http.post(url, json=body) as response:
        answer = await response.json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert answer["prompt_logprobs"][0]["logprob"] is None
    assert all(each["logprob"] <= 0 for each in answer["prompt_logprobs"][1:])
    assert len(answer["logprobs"]) == 3


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1, "suffix": "end"}, "echo"),
        ({"logprobs": 21}, "logprobs"),
    ],
)
async def test_what_cannot_be_had_is_refused_by_name(
    client: openai.AsyncOpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await complete(client, **options)
    assert caught.value.param == param
