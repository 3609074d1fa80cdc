import json
from typing import Any

import pytest
from openai.types import CreateEmbeddingResponse

from arriero.balancer.api.openai.queries.embeddings import (
    Embeddings,
    EmbeddingsCall,
    parse_embeddings,
)
from arriero.shared.errors import InvalidRequest, PromptTooLong, to_wire
from arriero.shared.queries import Embed, Embedded, Truncation, Vector
from tests.balancer.api.declared import check

ONE = Vector(vector="AACAPw==", num_tokens=2)  # 1.0
LONG = Vector(error=to_wire(PromptTooLong("it is long")))


def parsed(**body: Any) -> EmbeddingsCall:
    return parse_embeddings(json.dumps(body).encode())


def answered(call: EmbeddingsCall, *vectors: Vector) -> CreateEmbeddingResponse:
    answer = call.answer("m", [Embedded(vectors=vectors)])
    return CreateEmbeddingResponse.model_validate(
        answer | {"data": list(answer["data"])},  # type: ignore[call-overload]
        strict=True,
    )


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_forms_of_input(given: Any, inputs: Any) -> None:
    assert parsed(input=given, user="someone").query_request.parts == (Embed(inputs=inputs),)


def test_the_answer_is_openais() -> None:
    answer = answered(parsed(input=["a", "b"], model="m"), ONE, ONE)
    assert [each.index for each in answer.data] == [0, 1]
    assert answer.data[0].embedding == [1.0]
    assert (answer.model, answer.usage.total_tokens) == ("m", 4)


def test_base64_goes_through() -> None:
    answer = parsed(input="a", encoding_format="base64").answer("m", [Embedded(vectors=(ONE,))])
    assert next(answer["data"])["embedding"] == "AACAPw=="  # type: ignore[call-overload]


@pytest.mark.parametrize(("given", "place"), [("a", "input"), (["a"], "input[0]")])
def test_an_input_that_cannot_be_had_fails_the_call(given: Any, place: str) -> None:
    with pytest.raises(PromptTooLong) as caught:
        parsed(input=given).answer("m", [Embedded(vectors=(LONG,))])
    assert (caught.value.field, caught.value.message) == (place, f"`{place}`: it is long")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model": "m"}, "input"),
        ({"input": 7}, "input"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**body)
    assert caught.value.field == field


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_answers_are_as_declared(encoding: str) -> None:
    answer = parsed(input=["a"], encoding_format=encoding).answer("m", [Embedded(vectors=(ONE,))])
    check(Embeddings, {**answer, "data": list(answer["data"])})


@pytest.mark.parametrize(("given", "most"), [(5, 5), (-1, None)])
def test_the_last_tokens_stay_as_in_vllm(given: int, most: int | None) -> None:
    [part] = parsed(input="a", truncate_prompt_tokens=given).query_request.parts
    assert part == Embed(inputs=("a",), truncation=Truncation(keeps="last", most=most))


@pytest.mark.parametrize("given", [0, -2, "5"])
def test_no_such_number_of_tokens(given: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(input="a", truncate_prompt_tokens=given)
    assert caught.value.field == "truncate_prompt_tokens"
