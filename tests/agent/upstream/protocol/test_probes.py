import json
from base64 import b64decode
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from arriero.agent.upstream.protocol.dialects import OTHER, VLLM
from arriero.agent.upstream.protocol.probes import (
    MAX_TOKENS,
    Probe,
    first_probe,
    passes,
    probes_of,
)
from arriero.shared.inference import ImageUrl

PROBES = {each.shows: each for each in (first_probe("m"), *probes_of("m", VLLM))}


def said(content: str | None = "yes", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def counted(prompt: int, answer: int) -> dict[str, Any]:
    return {**said(), "usage": {"prompt_tokens": prompt, "completion_tokens": answer}}


def cut(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "length"}]}


CALL = [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]
SCORED = {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "a"}]}]}

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("messages", said()),
    ("prompt", {"choices": [{"text": "four"}]}),
    ("token_ids", counted(3, 4)),
    ("token_ids", counted(4, 4)),
    ("logprobs", {"choices": [{"message": {}, "logprobs": SCORED}]}),
    ("tools", said()),
    ("vision", said()),
    ("audio", said()),
    ("forced_calls", said(None, tool_calls=CALL)),
    ("forced_calls", cut(content=None, reasoning_content="hm")),
    ("json_schema", said('{"arriero": "probe"}')),
    ("json_schema", cut(content="", reasoning="hm")),
    ("json_schema", cut(content='{\n  "arriero":', reasoning_content="hm")),
    ("ignore_eos", counted(9, MAX_TOKENS)),
    ("embed", {"data": [{"index": 0, "embedding": [0.5]}]}),
    ("seed", said()),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"error": "no"}),
    ("token_ids", counted(9, 4)),
    ("token_ids", said()),
    ("logprobs", said()),
    ("forced_calls", said()),
    ("json_schema", said("yes")),
    ("json_schema", said('{"other": 1}')),
    ("json_schema", cut(content="The answer is")),
    ("ignore_eos", counted(9, 2)),
    ("embed", {"data": []}),
    ("vision", {"error": "no"}),
    ("audio", {"error": "no"}),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_a_server_that_can(name: str, answer: dict[str, Any]) -> None:
    assert passes(PROBES[name], json.dumps(answer).encode())


@pytest.mark.parametrize(("name", "answer"), WRONG)
def test_a_server_that_takes_a_field_and_ignores_it(name: str, answer: dict[str, Any]) -> None:
    assert not passes(PROBES[name], json.dumps(answer).encode())


def test_counts_of_a_stream() -> None:
    without = b'data: {"choices": [{"delta": {}}], "usage": null}\n\n'
    last = b'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: [DONE]\n\n'
    assert passes(PROBES["counts"], without + last)
    assert not passes(PROBES["counts"], without + b"data: [DONE]\n\n")


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"data: {\n\n", b'{"choices": []}'])
def test_an_answer_of_another_shape_shows_nothing(probe: Probe, body: bytes) -> None:
    assert not passes(probe, body)


def test_the_picture_is_one() -> None:
    _, part = PROBES["vision"].body["messages"][0]["content"]
    data = ImageUrl(url=part["image_url"]["url"]).base64
    with Image.open(BytesIO(b64decode(data, validate=True))) as picture:
        assert (picture.format, picture.size) == ("PNG", (64, 64))
        assert picture.getpixel((5, 5)) == (255, 0, 0)


def test_a_field_that_no_other_server_knows_is_not_tried() -> None:
    assert "ignore_eos" not in {each.shows for each in probes_of("m", OTHER)}
