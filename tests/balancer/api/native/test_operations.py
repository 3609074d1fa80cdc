"""What the document says of the native API, against events and answers of it."""

import json

import jsonschema
import pytest

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.document import inference_document
from arriero.balancer.api.native.events import NDJSON_LINES, EventWriter, answer_fields
from arriero.balancer.api.native.operations import NATIVE_ERRORS
from arriero.balancer.api.transport.http import native_error
from arriero.shared.errors import InvalidRequest, QueueFull
from arriero.shared.inference import (
    Done,
    Event,
    Failed,
    LogProb,
    Notice,
    Timings,
    Token,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)

DOCUMENT = inference_document("0")
DONE = Done(
    finish_reason="stop",
    usage=Usage(prompt_tokens=3),
    timings=Timings(queue_ms=1, first_token_ms=None, total_ms=2),
    agent="a",
    stop_string="x",
)
LIKELY = LogProb(5, b"a", -0.5)
EVENTS: list[Event] = [
    Token("a", log_probs=(TokenLogProbs(LIKELY, (LIKELY,)),)),
    Token("a", "reasoning"),
    ToolCallStarted("c", "f"),
    ToolCall("c", "f", "{}"),
    Notice("code", "message"),
    DONE,
    Failed(InvalidRequest("wrong", field="prompt")),
]


def check(name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_described(event: Event) -> None:
    check("Event", json.loads(EventWriter({"id": "1"}, NDJSON_LINES).render(event)))


def test_a_whole_answer_is_described() -> None:
    accumulator = Accumulator()
    for event in EVENTS[:-1]:
        accumulator.add(event)
    check("Answer", {"id": "1"} | json.loads(json.dumps(answer_fields(accumulator))))


def test_errors_are_described() -> None:
    check(NATIVE_ERRORS.name, native_error(QueueFull("later")))
    check(NATIVE_ERRORS.name, native_error(InvalidRequest("wrong", field="prompt")))
    assert NATIVE_ERRORS.word(QueueFull("later")) == "queue_full"
