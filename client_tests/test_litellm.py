"""litellm's proxy in front of the fleet, which it knows under three kinds of provider."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from client_tests.outside import Outside
from client_tests.program import Desk
from client_tests.recorder import Recorder
from client_tests.service import service

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-of-this-test-and-no-other-0123456789"
SETTINGS = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
ANSWER = "A slot is a place for one running sequence"


def config(url: str) -> str:
    """One model of each kind; anthropic's takes the address without `/v1`."""
    kinds = {"openai": f"{url}/v1", "hosted_vllm": f"{url}/v1", "anthropic": url}
    models = [
        {
            "model_name": kind,
            "litellm_params": {
                "model": f"{kind}/arriero-demo",
                "api_base": base,
                "api_key": "unused",
            },
        }
        for kind, base in kinds.items()
    ]
    return json.dumps({"model_list": models, "litellm_settings": {"telemetry": False}})


class Proxy:
    """The proxy's own API, and what it asked of the fleet."""

    def __init__(self, url: str, session: aiohttp.ClientSession, arriero: Recorder) -> None:
        self.arriero = arriero
        self._url = url
        self._session = session

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        async with self._session.post(f"{self._url}{path}", json=body) as response:
            return response.status, await response.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(
    serving: Any, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Proxy]:
    recorder = Recorder(serving.inference)
    await recorder.start()
    desk = Desk(tmp_path_factory.mktemp("litellm"), recorder, outside)
    desk.write("litellm.yaml", config(recorder.url))
    arguments = ["--config", str(desk.home / "litellm.yaml")]
    health = "/health/liveliness"
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        service(desk, "litellm", "litellm", *arguments, health=health, env=SETTINGS) as url,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        yield Proxy(url, session, recorder)
    await recorder.close()


@pytest.mark.parametrize("kind", ["openai", "hosted_vllm", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
async def test_chats_reach_the_fleet(proxy: Proxy, kind: str, stream: bool) -> None:
    messages = [{"role": "user", "content": "What is a slot?"}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 40, "stream": stream}
    status, answer = await proxy.post("/v1/chat/completions", {"model": kind, **body})
    assert status == 200, answer
    assert said(answer).startswith(ANSWER)
    path = "/v1/messages" if kind == "anthropic" else "/v1/chat/completions"
    assert proxy.arriero.exchanges[-1].path == path
    assert proxy.arriero.exchanges[-1].status == 200


@pytest.mark.parametrize("kind", ["openai", "hosted_vllm", "anthropic"])
async def test_messages_and_responses(proxy: Proxy, kind: str) -> None:
    """Clients of Anthropic's and of OpenAI's newer API may stand before the proxy, too."""
    messages = [{"role": "user", "content": "What is a slot?"}]
    body = {"model": kind, "messages": messages, "max_tokens": 40, "temperature": 0}
    status, answer = await proxy.post("/v1/messages", body)
    assert status == 200, answer
    assert json.loads(answer)["content"][0]["text"].startswith(ANSWER)
    body = {"model": kind, "input": "What is a slot?", "temperature": 0}
    status, answer = await proxy.post("/v1/responses", body)
    assert status == 200, answer
    assert ANSWER in answer


@pytest.mark.parametrize("kind", ["openai", "hosted_vllm"])
async def test_embeddings(proxy: Proxy, kind: str) -> None:
    status, answer = await proxy.post("/v1/embeddings", {"model": kind, "input": ["A slot."]})
    assert status == 200, answer
    assert len(json.loads(answer)["data"][0]["embedding"]) > 100


@pytest.mark.parametrize("kind", ["openai", "hosted_vllm", "anthropic"])
async def test_a_prompt_that_is_too_long_is_known_as_such(proxy: Proxy, kind: str) -> None:
    """By the words of the error, the proxy tells it from other bad requests."""
    messages = [{"role": "user", "content": "llama " * 40_000}]
    body = {"model": kind, "messages": messages, "max_tokens": 8}
    status, answer = await proxy.post("/v1/chat/completions", body)
    assert status == 400
    assert "ContextWindowExceededError" in answer


def said(answer: str) -> str:
    """The text of an answer, whole or streamed."""
    if not answer.startswith("data:"):
        return str(json.loads(answer)["choices"][0]["message"]["content"])
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
