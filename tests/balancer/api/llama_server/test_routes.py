"""llama-server's calls over a fake fleet runtime."""

import json
from typing import Any

from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.errors import PromptTooLong
from arriero.shared.inference import Failed
from arriero.shared.queries import Result, TokenizerDescription
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo


def described(_query_request: QueryRequest) -> tuple[Result, ...]:
    return (TokenizerDescription(eos_text="</s>", chat_template="{{ x }}"),)


async def test_a_completion_whole_and_streamed(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = echo
    response = await client.post("/completion", json={"prompt": "Hi", "n_predict": 4})
    answer = await response.json()
    assert (answer["content"], answer["model"], answer["stop"]) == ("you said: Hi", "demo", True)
    response = await client.post("/completion", json={"prompt": "Hi", "stream": True})
    assert response.headers["Content-Type"] == "text/event-stream"
    lines = (await response.text()).strip().split("\n\n")
    told: list[Any] = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(each["content"] for each in told) == "you said: Hi"
    assert [each["stop"] for each in told] == [False, False, True]


async def test_errors_name_its_fields(runtime: FakeFleetRuntime, client: TestClient) -> None:
    response = await client.post("/completion", json={"prompt": "Hi", "n_predict": "x"})
    assert (response.status, (await response.json())["error"]["param"]) == (400, "n_predict")
    runtime.script = lambda _: [Failed(PromptTooLong("too long", field="prompt"))]
    response = await client.post("/completion", json={"prompt": "Hi", "stream": True})
    assert response.status == 400


async def test_what_there_is_to_know_of_a_model(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.answers = described
    props = await (await client.get("/props")).json()
    assert (props["model_path"], props["total_slots"]) == ("demo", 4)
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert (props["chat_template"], props["bos_token"], props["eos_token"]) == (
        *("{{ x }}", "", "</s>"),
    )
    response = await client.get("/props?model=nobody")
    assert (response.status, (await response.json())["error"]["param"]) == (404, "model")
