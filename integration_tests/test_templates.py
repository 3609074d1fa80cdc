"""An agent with a chat template of its operator's, and the template variables of requests."""

from pathlib import Path
from typing import Any

import openai
import pytest

from integration_tests.corpus import Case, generate, plain_cases
from integration_tests.daemons import DEADLINE, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

DEMO_TEMPLATE = Path(__file__).parent.parent / "demo" / "template.jinja"
REFUSING = "{%- if refuse %}\n{{- raise_exception('refused: ' ~ refuse) }}\n{%- endif %}\n"


def continued(case: Case) -> dict[str, Any]:
    """The request to go on from the middle of the case's answer, between two words."""
    begun = case.answer[: case.answer.index(" ", len(case.answer) // 2)]
    messages = [*case.body["messages"], {"role": "assistant", "content": begun}]
    return {**case.body, "messages": messages, "continue_final_message": True}


async def test_the_operators_template(bare_fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "refusing.jinja"
    path.write_text(REFUSING + DEMO_TEMPLATE.read_text())
    await bare_fleet.start_agent(chat_template=path)
    case = plain_cases()[0]
    answer = await generate(bare_fleet.http, bare_fleet.inference, case.body)
    assert answer.text == case.answer

    told = {**case.body, "chat_template_kwargs": {"refuse": "today"}}
    async with bare_fleet.http.post(
        f"{bare_fleet.inference}/api/v1/generate", json=told
    ) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert (
        error["message"] == f"the chat template {path} refuses the messages, line 2: refused: today"
    )
    assert error["field"] == "messages"

    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{bare_fleet.inference}/v1", api_key="none", max_retries=0
    ) as client:
        for kwargs, part in (
            ({"refuse": "now"}, "refused: now"),
            ({"tools": 1}, "templates define themselves"),
        ):
            with pytest.raises(openai.BadRequestError, match=part):
                await client.chat.completions.create(
                    model="arriero-demo",
                    messages=case.body["messages"],
                    extra_body={"chat_template_kwargs": kwargs},
                )

    for case in plain_cases()[:3]:
        body = continued(case)
        answer = await generate(bare_fleet.http, bare_fleet.inference, body)
        assert body["messages"][-1]["content"] + answer.text == case.answer


async def test_tools_that_the_template_does_not_show(bare_fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "without-tools.jinja"
    path.write_text("{%- set tools = none %}" + DEMO_TEMPLATE.read_text())
    await bare_fleet.start_agent(chat_template=path)
    body = {**plain_cases()[0].body, "max_tokens": 48}
    tools = [{"type": "function", "function": {"name": "list_agents"}}]
    forced = {**body, "tools": tools, "tool_choice": "required"}
    asked, called, plain = [
        await generate(bare_fleet.http, bare_fleet.inference, each)
        for each in ({**body, "tools": tools}, forced, body)
    ]
    for answer in (asked, called):
        [warning] = [event for event in answer.events if event["event"] == "warning"]
        assert warning["code"] == "tools_described"
        assert "`tools`" in warning["message"]
        assert answer.end["usage"]["prompt_tokens"] > plain.end["usage"]["prompt_tokens"]
    [call] = called.calls
    assert (call["name"], called.end["finish_reason"]) == ("list_agents", "tool_calls")
    assert not [event for event in plain.events if event["event"] == "warning"]


@pytest.mark.parametrize(
    ("source", "wrong"),
    [("x\n{% for %}", "does not compile: line 2: "), (None, "No such file or directory")],
)
async def test_a_broken_template_stops_the_agent(
    bare_fleet: Fleet, tmp_path: Path, source: str | None, wrong: str
) -> None:
    path = tmp_path / "broken.jinja"
    if source is not None:
        path.write_text(source)
    agent = await bare_fleet.launch_agent(chat_template=path)
    assert await agent.exit_code() == 1
    [line] = [line for line in agent.stderr if wrong in line]
    assert str(path) in line
    assert not any("Traceback" in line for line in agent.stderr)
