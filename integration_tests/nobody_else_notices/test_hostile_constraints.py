"""Constraints that overflow a stack, or take minutes: each ends its request and nothing else."""

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.computing import num_workers
from integration_tests.corpus import LONG_CONTEXT
from integration_tests.daemons import Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.shared_fleets import SharedFleets

pytestmark = pytest.mark.asyncio(loop_scope="session")

Json = dict[str, Any]

DEEP = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(9000)},
}
SLOW = {"allOf": [{"type": "string", "pattern": f"a{n}b"} for n in range(40)]}
"""Each pattern doubles the work."""

ENDLESS = {"type": "object", "patternProperties": {f"^p{n:06}$": {} for n in range(3000)}}
"""Each pattern is compared with each other one, which takes minutes and hardly any memory."""

DEEP_LARK = "start: r0\n" + "\n".join(f"r{n}: r{n + 1}" for n in range(4000)) + '\nr4000: "b"'
NEGATED_LARK = "start: T0\n" + "\n".join(f"T{n}: ~T{n + 1}" for n in range(4000)) + "\nT4000: /b/"
SLOW_LARK = "start: T\nT: " + " & ".join(rf"/(.|\n)*a{n}/" for n in range(40))
SLOW_REGEX = "(x{1000}){1000}"
LONG_REGEX = "a?" * 32_700
GBNF = "root ::= " + " ".join(f"[{chr(0x4E00 + n % 600)}{chr(97 + n // 600)}]" for n in range(9000))
DEEP_GBNF = "root ::= r0\n" + "\n".join(f"r{n} ::= r{n + 1}" for n in range(3000))

ASKED: Json = {"messages": [{"role": "user", "content": "What is a slot?"}]}
CHAT, COMPLETIONS, NATIVE = "/v1/chat/completions", "/v1/completions", "/api/v1/generate"
PLAIN: Json = {"model": "arriero-demo", "stream": False}
PROMPT: Json = {"prompt": "A slot"}


def native(type: str, **content: Any) -> tuple[str, Json]:
    return NATIVE, ASKED | {"grammar": {"type": type, **content}}


def tool(parameters: Json, **fields: Any) -> list[Json]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, **fields}}]


FORMAT = {"type": "json_schema", "name": "f", "schema": DEEP}
NAMED = {"type": "function", "function": {"name": "f"}}

HOSTILE: dict[str, tuple[str, Json]] = {
    "json_schema": native("json_schema", schema=DEEP),
    "slow json_schema": native("json_schema", schema=SLOW),
    "endless json_schema": native("json_schema", schema=ENDLESS),
    "regex": native("regex", pattern=LONG_REGEX),
    "slow regex": native("regex", pattern=SLOW_REGEX),
    "lark": native("lark", grammar=DEEP_LARK),
    "negated lark": native("lark", grammar=NEGATED_LARK),
    "slow lark": native("lark", grammar=SLOW_LARK),
    "gbnf": native("gbnf", grammar=GBNF),
    "deep gbnf": native("gbnf", grammar=DEEP_GBNF),
    "tool": (NATIVE, ASKED | {"tools": tool(SLOW), "tool_choice": "required"}),
    "response_format": (
        CHAT,
        ASKED | {"response_format": {"type": "json_schema", "json_schema": FORMAT}},
    ),
    "response_format of llama-server": (
        CHAT,
        ASKED | {"response_format": {"type": "json_object", "schema": SLOW}},
    ),
    "structured_outputs.json": (CHAT, ASKED | {"structured_outputs": {"json": DEEP}}),
    "structured_outputs.regex": (CHAT, ASKED | {"structured_outputs": {"regex": LONG_REGEX}}),
    "structured_outputs.grammar": (CHAT, ASKED | {"structured_outputs": {"grammar": SLOW_LARK}}),
    "guided_json": (COMPLETIONS, PROMPT | {"guided_json": SLOW}),
    "guided_regex": (COMPLETIONS, PROMPT | {"guided_regex": LONG_REGEX}),
    "guided_grammar": (CHAT, ASKED | {"guided_grammar": DEEP_LARK}),
    "grammar of llama-server": (CHAT, ASKED | {"grammar": DEEP_GBNF}),
    "json_schema of llama-server": (COMPLETIONS, PROMPT | {"json_schema": DEEP}),
    "ebnf of SGLang": (CHAT, ASKED | {"ebnf": GBNF}),
    "forced tool": (CHAT, ASKED | {"tools": tool(SLOW), "tool_choice": NAMED}),
    "strict tool": (CHAT, ASKED | {"tools": tool(SLOW, strict=True)}),
    "one call": (CHAT, ASKED | {"tools": tool(SLOW), "parallel_tool_calls": False}),
    "text.format": ("/v1/responses", {"input": "x", "text": {"format": FORMAT}}),
    "tool of Responses": (
        "/v1/responses",
        {
            "input": "x",
            "tools": [{"type": "function", "name": "f", "parameters": SLOW}],
            "tool_choice": "required",
        },
    ),
    "output_config": (
        "/v1/messages",
        ASKED
        | {"max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": DEEP}}},
    ),
    "tool of Messages": (
        "/v1/messages",
        ASKED
        | {
            "max_tokens": 9,
            "tools": [{"name": "f", "input_schema": SLOW}],
            "tool_choice": {"type": "any"},
        },
    ),
    "format of Ollama": ("/api/chat", ASKED | {"format": DEEP}),
    "format of Ollama's completions": ("/api/generate", PROMPT | {"format": SLOW}),
}


@pytest_asyncio.fixture(loop_scope="session")
async def impatient(fleets: SharedFleets) -> Fleet:
    """A shared fleet whose agent compiles for a fraction of a second."""
    return await fleets.with_agent(context_size=LONG_CONTEXT, grammar_timeout="300ms")


@pytest_asyncio.fixture(loop_scope="session")
async def patient(fleets: SharedFleets) -> Fleet:
    """A shared fleet whose agent compiles for a minute."""
    return await fleets.with_agent(context_size=LONG_CONTEXT, grammar_timeout="60s", slots=8)


async def test_each_ends_its_own_request(impatient: Fleet) -> None:
    fleet = impatient
    pids = list(fleet.agents[0].engine_pids)
    refused: dict[str, tuple[int, str]] = {}

    async def ask(name: str) -> None:
        path, body = HOSTILE[name]
        async with fleet.http.post(f"{fleet.inference}{path}", json=body | PLAIN) as got:
            refused[name] = got.status, await got.text()

    async def attack(seen: Bystander) -> None:
        names = list(HOSTILE)
        for start in range(0, len(names), 2):  # more would wait for a slot
            await asyncio.gather(*map(ask, names[start : start + 2]))

    await unnoticed(fleet, attack)
    assert not {name: each for name, each in refused.items() if not is_refusal(*each)}
    assert fleet.agents[0].engine_pids == pids


def is_refusal(status: int, text: str) -> bool:
    """Whether an answer names the field, and the bound."""
    names_bound = "cannot be served: " in text or "too complex" in text or "at most" in text
    return status == 400 and "`" in text and names_bound


async def test_one_that_takes_long_ends_with_its_client(patient: Fleet) -> None:
    """As many at once as an agent compiles; others get their first tokens meanwhile."""
    fleet = patient
    _, body = HOSTILE["endless json_schema"]

    async def attack(seen: Bystander) -> None:
        slow = [
            asyncio.create_task(ask(fleet, f"{fleet.inference}{NATIVE}", body)) for _ in range(6)
        ]
        await until(lambda: has_workers(fleet.agents[0], 4))
        answer = await ask(fleet, f"{fleet.inference}{NATIVE}", PROMPT | {"max_tokens": 1})
        assert '"event":"done"' in answer
        assert not any(one.done() for one in slow), "they are still compiled"
        for one in slow:
            one.cancel()
        await until(lambda: has_workers(fleet.agents[0], 0))

    await unnoticed(fleet, attack)


async def ask(fleet: Fleet, url: str, body: Json) -> str:
    async with fleet.http.post(url, json=body) as response:
        return await response.text()


async def has_workers(agent: Daemon, number: int) -> bool:
    """Whether so many grammars are compiled, in a process each. One more waits for the next one."""
    return num_workers(agent.engine_pids[-1]) == number + 1
