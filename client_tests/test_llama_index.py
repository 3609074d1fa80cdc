"""LlamaIndex: a chat and an index."""

import pytest

from client_tests.program import ROOT, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = str(ROOT / "client_tests" / "scripts" / "ask_with_llama_index.py")


async def test_a_chat_and_an_index(desk: Desk) -> None:
    url = f"{desk.arriero.url}/v1"
    run = await desk.run("llama-index", "python", SCRIPT, url, "What is a slot?")
    told = run.json
    assert told["answer"] == told["streamed"]
    assert told["answer"].startswith("A slot is a place for one running sequence")
    assert told["found"] == ["A llama carries loads."]
    assert {each.status for each in desk.arriero.exchanges} == {200}
    assert desk.arriero.of("/v1/embeddings")
