"""What the native API answers is as its types say; so are lines that are written by hand."""

from typing import Any

import jsonschema
import pytest
from pydantic_core import from_json

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.native.answer_types import (
    AnswerFields,
    CountFields,
    DetokenizeFields,
    EmbedFields,
    ErrorAnswer,
    NativeEvent,
    TokenizeFields,
)
from arriero.balancer.api.native.events import NDJSON_LINES, EventWriter, answer_fields
from arriero.balancer.api.native.queries import CALLS
from arriero.shared.errors import InvalidRequest, to_wire
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
from arriero.shared.queries import Counted, Detokenized, Embedded, Result, Tokenized, Vector
from tests.balancer.api.declared import check

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


def line(event: Event) -> Any:
    return from_json(EventWriter({"id": "1"}, NDJSON_LINES).render(event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_as_declared(event: Event) -> None:
    check(NativeEvent, line(event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("change", [{"more": 1}, {"id": None}, {"event": "other"}])
def test_another_event_is_not(event: Event, change: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(NativeEvent, line(event) | change)


def test_a_whole_answer_is_as_declared() -> None:
    accumulator = Accumulator()
    for event in EVENTS[:-1]:
        accumulator.add(event)
    answer = answer_fields(accumulator)
    assert answer.keys() == AnswerFields.__annotations__.keys() - {"prompt_logprobs"}
    check(AnswerFields, answer)


def test_a_failed_answer_is_as_declared() -> None:
    accumulator = Accumulator()
    accumulator.add(EVENTS[-1])
    check(ErrorAnswer, answer_fields(accumulator))


VECTORS = (
    Vector(vector="AACAPw==", num_tokens=2),
    Vector(error=to_wire(InvalidRequest("wrong"))),
)


@pytest.mark.parametrize(
    ("name", "body", "result", "form"),
    [
        ("embed", b'{"input": ["a", "b"]}', Embedded(vectors=VECTORS), EmbedFields),
        ("tokenize", b'{"text": "a"}', Tokenized(tokens=(1, 2)), TokenizeFields),
        ("detokenize", b'{"tokens": [1]}', Detokenized(text="a"), DetokenizeFields),
        (
            "detokenize",
            b'{"tokens": [1]}',
            Detokenized(text="", bytes_base64="4g=="),
            DetokenizeFields,
        ),
        ("count_tokens", b'{"prompt": "a"}', Counted(num_tokens=3), CountFields),
    ],
)
def test_answers_to_queries_are_as_declared(
    name: str, body: bytes, result: Result, form: type
) -> None:
    answer = CALLS[name](body).answer([result])
    check(
        form,
        {
            key: each if isinstance(each, dict | str | int) else list(each)
            for key, each in answer.items()
        },
    )
