"""Lines are answered as their paths answer requests, with the class of batches."""

import json
from typing import get_args

import pytest

from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.openai.batches.batch_routes import BatchEndpoint, parse_batch
from arriero.balancer.api.openai.batches.line_handlers import BATCH_PRIORITY, LineHandlers
from arriero.balancer.api.transport.bodies import Bodies
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.jobs.lines import Answered, Line
from arriero.shared.errors import QueueFull
from arriero.shared.queries import Embedded, Vector
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo

ANN = Caller(name="ann", owner="ann")


async def asked(runtime: FakeFleetRuntime, url: str, **body: object) -> Answered:
    with Bodies() as bodies:
        conversations = Conversations()
        handlers = LineHandlers(runtime, conversations, bodies)  # type: ignore[arg-type]
        answered = await handlers.handle_line(
            Line(number=1, url=url, body=json.dumps(body).encode()), ANN
        )
        assert len(conversations.memory) == 0, "nothing is stored of a batch"
        return answered


@pytest.mark.parametrize(
    ("url", "body", "where"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}]},
            lambda answer: answer["choices"][0]["message"]["content"],
        ),
        ("/v1/completions", {"prompt": "Hi"}, lambda answer: answer["choices"][0]["text"]),
        (
            "/v1/responses",
            {"input": "Hi"},
            lambda answer: answer["output"][0]["content"][0]["text"],
        ),
    ],
)
async def test_what_generates(url: str, body: dict[str, object], where: object) -> None:
    runtime = FakeFleetRuntime(echo)
    answered = await asked(runtime, url, model="demo", **body)
    assert (answered.status, answered.error, answered.request_id) == (200, None, "req-0")
    assert where(json.loads(answered.body)) == "you said: Hi"  # type: ignore[operator]
    assert runtime.streams[0].request.priority == BATCH_PRIORITY
    assert runtime.callers == [ANN]


async def test_what_embeds() -> None:
    runtime = FakeFleetRuntime()
    runtime.answers = lambda _: (Embedded(vectors=(Vector(vector="AACAPw==", num_tokens=2),)),)
    answered = await asked(runtime, "/v1/embeddings", model="demo", input="Hi")
    assert json.loads(answered.body)["data"][0]["embedding"] == [1.0]


async def test_errors_are_answers() -> None:
    runtime = FakeFleetRuntime(echo)
    answered = await asked(runtime, "/v1/completions", prompt="Hi", temperature="hot")
    assert (answered.status, json.loads(answered.body)["error"]["param"]) == (400, "temperature")
    runtime.refusals = [QueueFull("full")]
    answered = await asked(runtime, "/v1/completions", prompt="Hi")
    assert (answered.status, answered.error) == (503, QueueFull("full"))
    answered = await asked(runtime, "/v1/responses", input="Hi", previous_response_id="resp_none")
    assert answered.status == 404


def test_every_endpoint_that_may_be_asked_has_a_handler() -> None:
    handlers = LineHandlers(FakeFleetRuntime(), Conversations(), Bodies())  # type: ignore[arg-type]
    endpoints = get_args(BatchEndpoint)
    assert set(handlers._endpoints) == set(endpoints)
    for endpoint in endpoints:
        body = {"input_file_id": "f", "endpoint": endpoint, "completion_window": "24h"}
        assert parse_batch(json.dumps(body).encode()).endpoint == endpoint
