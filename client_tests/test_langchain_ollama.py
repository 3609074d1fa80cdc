"""LangChain's binding for Ollama: chats, tools, typed answers, embeddings."""

import json

import pytest

from client_tests.program import ROOT, Desk
from integration_tests.corpus import cases

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = str(ROOT / "client_tests" / "scripts" / "ask_with_langchain_ollama.py")
CALLING = next(
    case
    for case in cases()
    if case.calls and not case.reasoning and len(case.body["messages"]) == 1
)


async def test_all_that_it_asks(desk: Desk) -> None:
    [question] = CALLING.body["messages"]
    told = (
        await desk.run(
            "langchain-ollama",
            *("python", SCRIPT, desk.arriero.url, "What is a slot?"),
            *(question["content"], json.dumps(CALLING.body["tools"])),
        )
    ).json
    assert told["answer"] == told["streamed"]
    assert told["answer"].startswith("A slot is a place for one running sequence")
    assert told["tokens"] > 10
    assert told["calls"] == [
        [call["name"], json.loads(call["arguments"])] for call in CALLING.calls
    ]
    assert told["after"]
    assert set(told["fact"]) == {"subject", "is_true"}
    assert told["thought"]
    assert told["width"] == 256
    assert {each.status for each in desk.arriero.exchanges} == {200}
