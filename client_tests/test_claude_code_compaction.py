"""Claude Code compacts when a prompt is too long, which it reads from the words of our error.

The calls that fill the context are forced, and so are the summary and the last answer: the demo
model's texts end late.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from client_tests.claude_code import claude
from client_tests.forced import Body, messages_call, only
from client_tests.program import Desk
from integration_tests.daemons import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMALL_CONTEXT = 8192
LINES = "".join(f"{n}. A llama carries loads over the mountains.\n" for n in range(60))


SUMMARY = "<summary>A llama was asked for lines.</summary>"


def saying(text: str) -> Body:
    """Fields that let the model answer with `text` alone, as the value of an object."""
    form = {"type": "json_schema", "schema": only({"text": text})}
    return {"output_config": {"format": form}, "tool_choice": {"type": "none"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving() -> AsyncIterator[Fleet]:
    """As in `conftest`, with less room."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(context_size=SMALL_CONTEXT, slots=2, threads=2)
        yield fleet


async def test_claude_code_compacts_when_a_prompt_is_too_long(desk: Desk) -> None:
    (desk.work / "lines.txt").write_text(LINES)
    call = messages_call("Bash", {"command": "cat lines.txt"}, num_calls=SMALL_CONTEXT)

    def until_refused(path: str, body: Body) -> Body:
        refused = any(each.status == 400 for each in desk.arriero.exchanges)
        if not refused:
            return call(path, body)
        asked_for_summary = "<summary>" in str(body["messages"][-1])
        return body | saying(SUMMARY if asked_for_summary else "These were the lines.")

    desk.arriero.edit = until_refused
    flags = ["--tools", "Bash", "--allowedTools", "Bash", "--system-prompt", "Be brief."]
    run = await claude(desk, "Print the lines.", *flags, "--output-format", "json")

    exchanges = desk.arriero.of("/v1/messages")
    refusal = next(each for each in exchanges if each.status == 400)
    assert "prompt is too long" in refusal.answered["error"]["message"]
    later = exchanges[exchanges.index(refusal) + 1 :]
    assert any("<summary>" in str(each.json["messages"][-1]) for each in later), run
    last = exchanges[-1]
    assert "continued from a previous conversation" in str(last.json["messages"][0]), (run, later)
    assert "A llama was asked for lines." in str(last.json["messages"][0])
    assert last.status == 200
    assert run.json["is_error"] is False
    assert "These were the lines." in run.json["result"]
