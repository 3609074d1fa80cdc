"""What clients of vLLM, SGLang, llama-server, Ollama and OpenAI send besides, on a real fleet."""

import json
from typing import Any

import openai
import pytest

from integration_tests.daemons import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "arriero-demo"
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is a slot?"}],
    "temperature": 0,
    "max_tokens": 24,
}
LONG = "word " * 5_000


async def posted(fleet: Fleet, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | headers
    async with fleet.http.post(fleet.inference + path, data=data, headers=headers) as response:
        return response.status, await response.json()


async def said(fleet: Fleet, **fields: Any) -> str:
    status, answer = await posted(fleet, "/v1/chat/completions", ASKED | fields)
    assert status == 200, answer
    return str(answer["choices"][0]["message"]["content"])


async def test_a_body_is_json_whatever_its_type(shared_fleet: Fleet) -> None:
    body = {"model": MODEL, "prompt": "Hi", "stream": False, "options": {"num_predict": 2}}
    for kind in ("application/octet-stream", "application/x-www-form-urlencoded", "text/plain"):
        status, answer = await posted(shared_fleet, "/api/generate", body, **{"Content-Type": kind})
        assert (status, answer["done"]) == (200, True), kind
    host = shared_fleet.inference
    pages = {"Content-Type": "text/plain", "Origin": host}
    assert (await posted(shared_fleet, "/api/generate", body, **pages))[0] == 400


async def test_pages_of_a_named_origin_call_models(fresh_fleet: Fleet) -> None:
    await fresh_fleet.start_balancer(allowed_origin="https://chat.example")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
    for origin, status in (("https://chat.example", 204), ("http://localhost:3000", 403)):
        headers = asked | {"Origin": origin}
        for base, expected in ((fresh_fleet.inference, status), (fresh_fleet.management, 403)):
            url = f"{base}/v1/chat/completions"
            async with fresh_fleet.http.options(url, headers=headers) as response:
                assert response.status == expected, (origin, base)
                allowed = response.headers.get("Access-Control-Allow-Origin")
                assert allowed == (origin if expected == 204 else None)


async def test_inputs_that_are_too_long_are_cut_and_told(shared_fleet: Fleet) -> None:
    body = {"model": MODEL, "input": ["Hi", LONG]}
    status, answer = await posted(shared_fleet, "/api/embed", body)
    assert (status, answer["truncated"], len(answer["embeddings"])) == (200, [1], 2)
    assert answer["prompt_eval_count"] > 2_000
    assert (await posted(shared_fleet, "/api/embed", body | {"truncate": False}))[0] == 400
    cut = {"model": MODEL, "input": LONG, "truncate_prompt_tokens": 7}
    _, answer = await posted(shared_fleet, "/v1/embeddings", cut)
    assert answer["usage"]["prompt_tokens"] == 7


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "perhaps not"},
        {"ebnf": 'root ::= "perhaps not"'},
        {"grammar": 'root ::= "perhaps" " not"'},
        {"guided_grammar": 'start: "perhaps" " not"'},
        {"structured_outputs": {"grammar": 'start: "perhaps" " not"'}, "regex": None},
    ],
)
async def test_an_answer_is_as_other_servers_fields_say(
    shared_fleet: Fleet, fields: dict[str, Any]
) -> None:
    assert await said(shared_fleet, **fields) == "perhaps not"


async def test_objects_have_no_more_members_than_are_named(shared_fleet: Fleet) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
    for seed in range(6):
        hot = {"temperature": 2, "seed": seed, "top_k": -1, "max_tokens": 200}
        assert json.loads(await said(shared_fleet, json_schema=schema, **hot)) == {"a": 1}


async def test_which_tokens_an_answer_is_made_of(shared_fleet: Fleet) -> None:
    _, found = await posted(shared_fleet, "/api/v1/tokenize", {"text": "yes"})
    allowed = found["tokens"]
    text = await said(shared_fleet, allowed_token_ids=allowed, max_tokens=4)
    assert text.strip("yes") == ""
    free = await said(shared_fleet)
    word = next(each for each in free.split() if each.isalpha())
    assert word not in (await said(shared_fleet, bad_words=[word])).split()


async def test_a_prompt_is_cut_to_its_last_tokens(shared_fleet: Fleet) -> None:
    body = {"model": MODEL, "prompt": LONG, "max_tokens": 4, "truncate_prompt_tokens": 9}
    _, answer = await posted(shared_fleet, "/v1/completions", body)
    assert answer["usage"]["prompt_tokens"] == 9
    _, answer = await posted(
        shared_fleet, "/v1/completions", body | {"truncate_prompt_tokens": -1, "max_tokens": -1}
    )
    assert answer["usage"]["prompt_tokens"] > 1_000


def function(name: str) -> dict[str, Any]:
    properties = {"word": {"enum": ["a", "b"]}}
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


async def test_a_named_function_is_called_once(shared_fleet: Fleet) -> None:
    tools = [{"type": "function", "function": function(name)} for name in ("look", "listen")]
    choice = {"type": "function", "function": {"name": "look"}}
    asked = {"tools": tools, "tool_choice": choice, "max_tokens": 300, "temperature": 1.5}
    for seed in range(4):
        body = ASKED | asked | {"seed": seed}
        _, answer = await posted(shared_fleet, "/v1/chat/completions", body)
        calls = answer["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["name"] for call in calls] == ["look"]


async def test_older_clients_call_functions(shared_fleet: Fleet) -> None:
    asked = {"functions": [function("look")], "function_call": {"name": "look"}, "max_tokens": 200}
    _, answer = await posted(shared_fleet, "/v1/chat/completions", ASKED | asked)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "function_call"
    call = choice["message"]["function_call"]
    assert call["name"] == "look"
    result = {"role": "function", "name": "look", "content": "nothing"}
    messages = [*ASKED["messages"], {"role": "assistant", "function_call": call}, result]
    assert await said(shared_fleet, functions=[function("look")], messages=messages) is not None


async def test_llama_servers_clients(shared_fleet: Fleet) -> None:
    body = {"prompt": "A slot is", "n_predict": 6, "temperature": 0, "return_tokens": True}
    status, answer = await posted(shared_fleet, "/completion", body)
    assert (status, answer["stop_type"], len(answer["tokens"])) == (200, "limit", 6)
    async with shared_fleet.http.get(f"{shared_fleet.inference}/props") as response:
        props = await response.json()
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert "messages" in props["chat_template"]


async def test_openais_conversations_and_socket(shared_fleet: Fleet) -> None:
    url = f"{shared_fleet.inference}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
        conversation = await client.conversations.create()
        first = await client.responses.create(
            model=MODEL, input="What is a slot?", conversation=conversation.id, max_output_tokens=9
        )
        items = await client.conversations.items.list(conversation.id, order="asc")
        assert [item.type for item in items.data] == ["message", *(e.type for e in first.output)]
        async with client.responses.connect() as connection:
            previous = None
            for text in ("What is a slot?", "And an agent?"):
                await connection.send(
                    {
                        "type": "response.create",
                        "model": MODEL,
                        "input": text,
                        "store": False,
                        "previous_response_id": previous,
                        "max_output_tokens": 9,
                    }
                )
                async for event in connection:
                    if event.type in ("response.completed", "response.incomplete", "error"):
                        break
                assert event.type != "error", event
                previous = event.response.id
            assert event.response.usage is not None
            assert event.response.usage.input_tokens > 20
