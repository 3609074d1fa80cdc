"""Arguments and schemas that make a check of a call's arguments as expensive as can be."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import LONG_CONTEXT, Case, cases, generate
from integration_tests.daemons import Fleet, started_fleet
from integration_tests.nobody_else_notices.bystander import Bystander, unnoticed
from integration_tests.test_templates import DEMO_TEMPLATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEPTH = 450
"""More levels than a check goes down, and with its own frames more than Python's stack has."""
BRACKETS = ("65", "67")
"""The demo model's tokens for `[` and `]`."""
NUM_OPTIONS = 60_000
NUM_CHECKS = 1000


def behind_references(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    """Definitions of which `a0` leads to `schema`; for each reference the check goes deeper."""
    return {
        **{f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(depth)},
        f"a{depth}": schema,
    }


def lists_within_lists(depth: int) -> dict[str, Any]:
    """Definitions of which `0` is a list within so many others."""
    return {
        str(n): {
            "type": "array",
            "items": {"$ref": f"#/$defs/{n + 1}"} if n + 1 < depth else False,
            "maxItems": 1,
            **({"minItems": 1} if n + 1 < depth else {}),
        }
        for n in range(depth)
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def without_tools(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Agents whose template shows names of tools alone: schemas may be longer than the context."""
    path = tmp_path_factory.mktemp("templates") / "without-tools.jinja"
    names = "{%- for tool in tools or () %}{{ tool.function.name }} {% endfor %}"
    path.write_text(names + "{%- set tools = none %}" + DEMO_TEMPLATE.read_text())
    async with started_fleet(context_size=LONG_CONTEXT, chat_template=path) as fleet:
        yield fleet


async def test_arguments_deeper_than_a_check_goes(without_tools: Fleet) -> None:
    """A check that went down all levels would need more of the stack than the parser did."""
    parameters = {
        "type": "object",
        "properties": {"x": {"anyOf": [{"$ref": "#/$defs/a0"}, {"$ref": "#/$defs/0"}]}},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {**lists_within_lists(DEPTH), **behind_references({"enum": [[1]]}, 80)},
    }
    body = {
        "messages": [{"role": "user", "content": "Call f."}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
        "tool_choice": {"name": "f"},
        "parallel_tool_calls": False,
        "logit_bias": dict.fromkeys(BRACKETS, 100),  # rather than white space
        "temperature": 0,
    }

    async def attack(seen: Bystander) -> None:
        for agent in without_tools.agents:
            await agent.pace.slow(None)  # the call is long
        answer = await generate(without_tools.http, without_tools.inference, body)
        [call] = answer.calls
        assert "".join(call["arguments"].split()) == '{"x":' + "[" * DEPTH + "]" * DEPTH + "}"

    await unnoticed(without_tools, attack)


def shown_by_hand(case: Case) -> list[dict[str, Any]]:
    """The messages of a case with tools, where the template shows none."""
    tools = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in case.body["tools"])
    system = (
        f"# Tools\n\nYou may call these functions:\n<tools>{tools}\n</tools>\n\n"
        "For each call write a JSON object within <tool_call></tool_call>."
    )
    return [{"role": "system", "content": system}, *case.body["messages"]]


async def test_an_enum_that_is_checked_again_and_again(without_tools: Fleet) -> None:
    case = next(
        case
        for case in cases()
        if len(case.calls) == 1 and case.body["messages"][0]["role"] != "system"
    )
    [wanted] = case.calls
    options = [*range(NUM_OPTIONS), json.loads(wanted["arguments"])]
    parameters = {"allOf": [{"$ref": "#/$defs/x"}] * NUM_CHECKS, "$defs": {"x": {"enum": options}}}
    function = {"name": wanted["name"], "parameters": parameters}
    body = {
        **case.body,
        "messages": shown_by_hand(case),
        "tools": [{"type": "function", "function": function}],
    }

    async def attack(seen: Bystander) -> None:
        answer = await generate(without_tools.http, without_tools.inference, body)
        [call] = answer.calls
        assert call["arguments"] == wanted["arguments"]

    await unnoticed(without_tools, attack)
