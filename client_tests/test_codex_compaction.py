"""Codex compacts before its window is full: a summary replaces the results of calls."""

import pytest

from client_tests.codex import codex
from client_tests.forced import Body, responses_call
from client_tests.program import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW = 18_000
"""Tokens. The first prompt has 14,300, and each call adds 900."""
LINES = "".join(f"{n}. A llama carries loads over the mountains.\n" for n in range(60))


async def test_codex_compacts_before_the_window_is_full(desk: Desk) -> None:
    (desk.work / "lines.txt").write_text(LINES)
    call = responses_call("exec_command", {"cmd": "cat lines.txt"}, num_calls=WINDOW)

    def asks_for_summary(body: Body) -> bool:
        return not body.get("tools")

    def until_compacted(path: str, body: Body) -> Body:
        compacted = any(asks_for_summary(each.json) for each in desk.arriero.of("/v1/responses"))
        return body if compacted else call(path, body)

    desk.arriero.edit = until_compacted
    events = (await codex(desk, "Print the lines.", context_size=WINDOW)).json_lines
    exchanges = desk.arriero.of("/v1/responses")
    assert {each.status for each in exchanges} == {200}
    [at] = [n for n, each in enumerate(exchanges) if asks_for_summary(each.json)]
    before, after = (exchanges[n].json["input"] for n in (at - 1, at + 1))
    assert sum(item["type"] == "function_call_output" for item in before) > 1
    assert not any(item["type"] == "function_call_output" for item in after)
    said = exchanges[at].events[-1]["response"]["output"][-1]["content"][0]["text"]
    assert said.strip() in str(after[-1]["content"][0]["text"])
    assert events[-1]["type"] == "turn.completed"
