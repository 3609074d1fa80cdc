import json
from typing import Any

from arriero.balancer.api.common.merge import open_all, or_refusal
from arriero.balancer.api.native.calls import answer_batch, answer_generate
from arriero.balancer.api.native.requests import Batch
from arriero.shared.errors import AgentLost, QueueFull
from arriero.shared.inference import Failed, GenerateRequest, Token, Waiting
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo


class Emitted:
    """What went out, read back."""

    def __init__(self) -> None:
        self.params: list[Any] = []
        self.num_waits = 0

    def write(self, frame: bytes) -> bool:
        self.params.append(json.loads(frame)["params"])
        self.num_waits -= 1
        return False

    async def drained(self) -> None:
        self.num_waits += 1

    def texts(self, item: str | None = None) -> str:
        return "".join(p.get("text", "") for p in self.params if p.get("item") == item)


async def generate(runtime: FakeFleetRuntime, emit: Emitted, **body: Any) -> Any:
    wanted = GenerateRequest(prompt="x", **body)
    return json.loads(await answer_generate("r", wanted, runtime.open(wanted), emit))


async def test_events_go_out_before_the_answer() -> None:
    emitted = Emitted()
    answer = await generate(FakeFleetRuntime(echo), emitted)
    assert emitted.texts() == "you said: x"
    assert emitted.num_waits == 0, "after each frame it waits for room, since there is none"
    assert answer["result"]["finish_reason"] == "stop"
    assert "text" not in answer["result"]


async def test_in_one_piece_nothing_goes_out_before() -> None:
    emitted = Emitted()
    answer = await generate(FakeFleetRuntime(echo), emitted, stream=False)
    assert emitted.params == []
    assert answer["result"]["text"] == "you said: x"


async def test_one_that_waits_is_told_in_notifications() -> None:
    runtime = FakeFleetRuntime(lambda _: [Waiting(2, "model"), Failed(AgentLost("gone"))])
    emitted = Emitted()
    answer = await generate(runtime, emitted)
    assert emitted.params == [
        {"event": "waiting", "id": "r", "position": 2, "for": "model", "seconds_left": None}
    ]
    assert answer["error"]["data"]["code"] == "agent_lost"


async def test_a_failure_is_the_answer() -> None:
    runtime = FakeFleetRuntime(lambda _: [Token("a"), Failed(AgentLost("gone"))])
    for stream in (True, False):
        answer = await generate(runtime, Emitted(), stream=stream)
        assert answer["error"]["data"]["code"] == "agent_lost"


async def batch(emitted: Emitted, stream: bool) -> list[Any]:
    runtime = FakeFleetRuntime(echo)
    runtime.refusals = [None, QueueFull("full")]
    requests = tuple(GenerateRequest(prompt=name) for name in "AB")
    streams = open_all(or_refusal(runtime.open), requests)
    wanted = Batch(("a", "b"), requests, stream)
    return json.loads(await answer_batch(7, wanted, streams, emitted))["result"]["results"]


async def test_a_batchs_events_name_their_item() -> None:
    emitted = Emitted()
    first, second = await batch(emitted, True)
    assert {params["id"] for params in emitted.params} == {7}
    assert emitted.texts("a") == "you said: A"
    assert {p["item"]: p["event"] for p in emitted.params} == {"a": "done", "b": "error"}
    assert (first["id"], first["finish_reason"], "text" in first) == ("a", "stop", False)
    assert second["error"]["code"] == "queue_full"


async def test_a_batch_in_one_piece() -> None:
    emitted = Emitted()
    first, second = await batch(emitted, False)
    assert emitted.params == []
    assert first["text"] == "you said: A"
    assert second == {
        "id": "b",
        "error": {"code": "queue_full", "message": "full", "retryable": True},
    }
