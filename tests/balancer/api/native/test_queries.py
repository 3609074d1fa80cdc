import json
from typing import Any

import pytest

from arriero.balancer.api.native.queries import (
    CALLS,
    CountFields,
    DetokenizeFields,
    EmbedFields,
    QueryCall,
    TokenizeFields,
)
from arriero.shared.errors import InvalidRequest, PromptTooLong, to_wire
from arriero.shared.inference import GenerateRequest
from arriero.shared.queries import (
    Counted,
    CountTokens,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Result,
    Tokenize,
    Tokenized,
    Vector,
)
from tests.balancer.api.declared import check

ONE = Vector(vector="AACAPw==", num_tokens=2)  # 1.0


def call(name: str, **body: Any) -> QueryCall:
    return CALLS[name](json.dumps(body).encode())


class TestEmbed:
    def test_everything_that_can_be_asked(self) -> None:
        asking = call(
            "embed",
            input=["a", [1, 2]],
            model="m",
            pooling="last",
            normalize="none",
            dimensions=1,
            encoding="base64",
        )
        assert asking.query_request.model == "m"
        assert asking.query_request.parts == (
            Embed(inputs=("a", (1, 2)), pooling="last", normalize="none", dimensions=1),
        )
        answer = asking.answer([Embedded(vectors=(ONE, ONE))])
        assert answer["usage"] == {"prompt_tokens": 4}
        assert next(iter(answer["embeddings"])) == {  # type: ignore[call-overload]
            "index": 0,
            "embedding": "AACAPw==",
            "num_tokens": 2,
        }

    def test_an_input_that_cannot_be_had_has_its_error(self) -> None:
        error = PromptTooLong("it is long")
        vectors = (ONE, Vector(error=to_wire(error)))
        answer = call("embed", input=["a", "b"]).answer([Embedded(vectors=vectors)])
        good, bad = answer["embeddings"]  # type: ignore[misc]
        assert good["embedding"] == [1.0]
        assert bad == {
            "index": 1,
            "error": {"code": "prompt_too_long", "message": "it is long", "retryable": False},
        }

    def test_null_means_what_leaving_it_out_means(self) -> None:
        [part] = call("embed", input="a", pooling=None, model=None).query_request.parts
        assert part == Embed(inputs=("a",))

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "input"),
            ({"input": []}, "input"),
            ({"input": ["a", ""]}, "input[1]"),
            ({"input": [[1], []]}, "input[1]"),
            ({"input": "a", "pooling": "sum"}, "pooling"),
            ({"input": "a", "dimensions": 0}, "dimensions"),
            ({"input": "a", "colour": "red"}, "colour"),
            ({"input": ["a"] * 2049}, "input"),
        ],
    )
    def test_what_is_wrong_is_named(self, body: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            call("embed", **body)
        assert caught.value.field == field


def test_tokenize() -> None:
    asking = call("tokenize", text="a", add_special=True)
    assert asking.query_request.parts == (Tokenize(text="a", add_special=True),)
    assert asking.answer([Tokenized(tokens=(1, 2))]) == {"tokens": (1, 2), "num_tokens": 2}


def test_detokenize() -> None:
    asking = call("detokenize", tokens=[1, 2], model="m")
    assert asking.query_request.parts == (Detokenize(tokens=(1, 2)),)
    assert asking.answer([Detokenized(text="x")]) == {"text": "x"}
    broken = Detokenized(text="?", bytes_base64="ww==")
    assert asking.answer([broken]) == {"text": "?", "bytes": "ww=="}


def test_count_tokens_takes_what_generate_takes() -> None:
    asking = call("count_tokens", prompt="x", model="m", max_tokens=3)
    request = GenerateRequest(prompt="x", model="m", max_tokens=3)
    assert asking.query_request.parts == (CountTokens(request=request),)
    assert asking.query_request.model == "m"
    assert asking.answer([Counted(num_tokens=9)]) == {"num_tokens": 9}


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("tokenize", {}, "text"),
        ("detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("detokenize", {"tokens": "a"}, "tokens"),
        ("detokenize", {"tokens": [0] * 65_537}, "tokens"),
        ("tokenize", {"text": "x" * 1_048_577}, "text"),
        ("count_tokens", {"prompt": "a", "colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named(name: str, body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(name, **body)
    assert caught.value.field == field


# ---- as declared

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
