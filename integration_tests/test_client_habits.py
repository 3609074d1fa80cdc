"""Habits of existing clients: what they send and what they look for, against a real fleet."""

import re
from typing import Any

import pytest

from integration_tests.daemons import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "word " * 30_000


async def posted(fleet: Fleet, path: str, body: dict[str, Any], status: int = 200) -> Any:
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as response:
        answer = await response.json()
        assert response.status == status, answer
        return answer


@pytest.mark.parametrize(
    ("path", "fields", "code"),
    [
        ("/api/v1/generate", {"prompt": LONG}, "prompt_too_long"),
        ("/v1/completions", {"prompt": LONG}, "context_length_exceeded"),
        ("/v1/chat/completions", {"messages": "LONG"}, "context_length_exceeded"),
        ("/v1/responses", {"input": LONG}, "context_length_exceeded"),
        ("/v1/messages", {"messages": "LONG", "max_tokens": 9}, None),
    ],
)
async def test_too_long_is_told_in_words_that_clients_match(
    shared_fleet: Fleet, path: str, fields: dict[str, Any], code: str | None
) -> None:
    body = {"model": "arriero-demo", **fields}
    if "messages" in body:
        body["messages"] = [{"role": "user", "content": LONG}]
    error = (await posted(shared_fleet, path, body, 400))["error"]
    pattern = (
        r"prompt is too long: (at least )?\d+ tokens > \d+ maximum\. "
        r"This model's maximum context length is \d+ tokens\."
    )
    assert re.search(pattern, error["message"])
    assert error.get("code") == code
    if code is None:
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("roles", "same"),
    [
        (["developer", "developer", "user"], ["system", "user"]),
        (["system", "user", "system"], ["system", "user"]),
    ],
)
async def test_instructions_anywhere_are_told_to_a_template_that_wants_them_first(
    shared_fleet: Fleet, roles: list[str], same: list[str]
) -> None:
    """As Codex and Claude Code send them; the demo's template refuses both."""

    async def length(said: list[str]) -> int:
        messages = [{"role": role, "content": f"{role} says so. " * 3} for role in said]
        body = {"messages": messages, "max_tokens": 1, "model": "arriero-demo"}
        answer = await posted(shared_fleet, "/v1/chat/completions", body)
        return int(answer["usage"]["prompt_tokens"])

    assert await length(roles) > await length(same)


async def test_tools_as_codex_sends_them(shared_fleet: Fleet) -> None:
    function = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    body = {
        "model": "arriero-demo",
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "developer", "content": "Use tools."},
            {"role": "user", "content": "Read it."},
        ],
        "tools": [
            {"type": "web_search", "external_web_access": False},
            {"type": "custom", "name": "patch", "format": {"type": "text"}},
            {"type": "namespace", "name": "files", "description": "Files.", "tools": [function]},
        ],
        "tool_choice": "required",
        "max_output_tokens": 200,
        "temperature": 0,
        "client_metadata": {"x": "y"},
        "text": {"verbosity": "low"},
    }
    answer = await posted(shared_fleet, "/v1/responses", body)
    call = next(item for item in answer["output"] if item["type"] == "function_call")
    assert (call["namespace"], call["name"]) == ("files", "read")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "text"}
    more = {**body, "input": [*body["input"], call, result], "tool_choice": "auto"}
    assert (await posted(shared_fleet, "/v1/responses", more))["status"] != "failed"


@pytest.mark.parametrize(
    "fields",
    [{"guided_choice": ["perhaps not"]}, {"structured_outputs": {"regex": "perhaps not"}}],
)
async def test_an_answer_is_as_vllms_fields_say(
    shared_fleet: Fleet, fields: dict[str, Any]
) -> None:
    body = {"model": "arriero-demo", "messages": [{"role": "user", "content": "Is it?"}], **fields}
    answer = await posted(shared_fleet, "/v1/chat/completions", body)
    assert answer["choices"][0]["message"]["content"] == "perhaps not"


ASKED = {"messages": [{"role": "user", "content": "What is a slot?"}], "model": "arriero-demo"}


async def test_an_answer_has_min_tokens(shared_fleet: Fleet) -> None:
    async def said(path: str, **fields: Any) -> tuple[str, int]:
        body = {**ASKED, "temperature": 0, "stream": False, **fields}
        answer = await posted(shared_fleet, path, body)
        if path == "/v1/chat/completions":
            return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]
        return answer["text"], answer["usage"]["completion_tokens"]

    for path in ("/v1/chat/completions", "/api/v1/generate"):
        text, num_tokens = await said(path)
        stop = text[3:6]
        assert await said(path, stop=[stop], include_stop_str_in_output=True) == (
            text[: text.index(stop) + 3],
            (await said(path, stop=[stop]))[1],
        )
        longer, num_longer = await said(path, min_tokens=num_tokens + 20, stop=[stop])
        assert longer.startswith(text)
        assert num_longer >= num_tokens + 20
        grammar = {"type": "regex", "pattern": "perhaps not"}
        assert (await said(path, min_tokens=500, grammar=grammar))[0] == "perhaps not"


async def test_an_answer_ends_before_a_stop_token(shared_fleet: Fleet) -> None:
    asked = {"prompt": "A slot is", "model": "arriero-demo", "temperature": 0, "max_tokens": 20}
    whole = (await posted(shared_fleet, "/v1/completions", asked))["choices"][0]["text"]
    tokens = (await posted(shared_fleet, "/api/v1/tokenize", {"text": whole}))["tokens"]
    for token in (each if isinstance(each, int) else each["id"] for each in tokens[2:3]):
        answer = await posted(shared_fleet, "/v1/completions", {**asked, "stop_token_ids": [token]})
        [choice] = answer["choices"]
        assert whole.startswith(choice["text"])
        assert len(choice["text"]) < len(whole)
        assert choice["finish_reason"] == "stop"


async def test_values_are_obeyed_as_programs_write_them(shared_fleet: Fleet) -> None:
    asked = {"prompt": "A slot is", "seed": -1, "temperature": 5, "stop": "", "top_k": 0.0}
    many = {**asked, "max_completion_tokens": 12.0, "logit_bias": [], "grammar": ""}
    many["ignore_eos"] = True
    answers = [await posted(shared_fleet, "/v1/completions", many) for _ in range(2)]
    assert [each["usage"]["completion_tokens"] for each in answers] == [12, 12]
    one, other = (each["choices"][0]["text"] for each in answers)
    assert one != other, "any seed is another one each time"
    same = [
        await posted(shared_fleet, "/v1/completions", {**many, "seed": 7, "top_p": top_p})
        for top_p in (0, 1e-6)
    ]
    assert same[0]["choices"] == same[1]["choices"]


async def test_samplers_apply_in_the_order_that_is_given(shared_fleet: Fleet) -> None:
    """A temperature that flattens all, before a filter that then leaves nearly all, or after it."""
    asked = {"prompt": "A slot is", "seed": 7, "max_tokens": 12, "temperature": 10, "min_p": 0.5}
    orders = (["min_p", "temperature"], ["temperature", "min_p"])
    one, other = [
        await posted(shared_fleet, "/completion", {**asked, "n_predict": 12, "samplers": order})
        for order in orders
    ]
    assert one["content"] != other["content"]
    idle = [*orders[0], "adaptive_p"]
    body = {**asked, "n_predict": 12, "samplers": idle, "adaptive_target": -0.01}
    assert (await posted(shared_fleet, "/completion", body))["content"] == one["content"]
    body |= {"adaptive_target": 0.05, "adaptive_decay": 0.5}
    assert (await posted(shared_fleet, "/completion", body))["content"] != one["content"]


async def test_a_schema_that_is_not_strict_is_checked_at_the_end(shared_fleet: Fleet) -> None:
    schema = {"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 2}
    grammar = {"type": "json_schema", "schema": {**schema, "uniqueItems": True}}
    asked = {"prompt": "x", "stream": False}
    error = await posted(shared_fleet, "/api/v1/generate", {**asked, "grammar": grammar}, 400)
    assert error["error"]["field"] == "grammar.schema"
    body = {**asked, "grammar": {**grammar, "strict": False}}
    answer = await posted(shared_fleet, "/api/v1/generate", body)
    codes = [each["code"] for each in answer["warnings"]]
    assert codes == ["schema_not_enforced", "schema_mismatch"]


async def test_calls_of_llama_servers_tokenizer_and_of_editors(shared_fleet: Fleet) -> None:
    tokens = (await posted(shared_fleet, "/tokenize", {"content": "What is a slot?"}))["tokens"]
    text = await posted(shared_fleet, "/detokenize", {"tokens": tokens})
    assert text["content"] == "What is a slot?"
    gap = {"input_prefix": "a", "input_suffix": "b", "samplers": ["top_k", "infill"]}
    error = (await posted(shared_fleet, "/infill", gap, 400))["error"]
    assert error["message"].startswith("`input_suffix`: this model has no tokens for filling in")


async def test_a_character_that_is_cut_leaves_no_other(shared_fleet: Fleet) -> None:
    rare = "\U00020bb7"
    tokens = (await posted(shared_fleet, "/tokenize", {"content": rare}))["tokens"]
    assert len(tokens) > 1, "it is cut"
    grammar = {"type": "regex", "pattern": rare}
    body = {"prompt": "x", "stream": False, "max_tokens": 1, "grammar": grammar}
    answer = await posted(shared_fleet, "/api/v1/generate", body)
    assert (answer["text"], answer["finish_reason"]) == ("", "length")
