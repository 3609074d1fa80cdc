"""Bodies of `/api/embed` and `/api/embeddings` as queries, and their results as answers."""

import base64
import json
import struct
from typing import Any

import pytest

from arriero.balancer.api.ollama.embeddings import (
    parse_embed,
    parse_embeddings,
    vector_answer,
    vectors_answer,
)
from arriero.shared.errors import InvalidRequest, PromptTooLong, to_wire
from arriero.shared.queries import Embed, Embedded, Truncation, Vector


def vector(*numbers: float) -> Vector:
    packed = struct.pack(f"<{len(numbers)}f", *numbers)
    return Vector(vector=base64.b64encode(packed).decode(), num_tokens=3)


RESULTS = [Embedded(vectors=(vector(1.0, 0.5), vector(0.0, -1.0)))]


def embed(**body: Any) -> Any:
    return parse_embed(json.dumps({"model": "m"} | body).encode())


def test_texts_are_embedded_with_length_one() -> None:
    call = embed(input=["a", "b"], dimensions=2, options={"num_ctx": 5})
    query = call.query_request("served")
    assert (query.model, query.kind) == ("served", "embed")
    first = Truncation(keeps="first")
    assert query.parts == (Embed(inputs=("a", "b"), dimensions=2, truncation=first),)
    told = dict(vectors_answer(call, RESULTS, 5_000))
    told["embeddings"] = list(told["embeddings"])
    assert told == {
        "model": "m",
        "embeddings": [[1.0, 0.5], [0.0, -1.0]],
        "total_duration": 5_000,
        "load_duration": 0,
        "prompt_eval_count": 6,
    }


def test_one_text_need_not_be_in_a_list() -> None:
    assert embed(input="a").inputs == ("a",)


@pytest.mark.parametrize("body", [{}, {"input": ""}, {"input": []}])
def test_without_an_input_there_are_no_vectors(body: dict[str, Any]) -> None:
    call = embed(**body)
    assert call.inputs == ()
    assert list(vectors_answer(call, [], 1)["embeddings"]) == []


def test_the_older_call_has_one_vector_as_the_model_gave_it() -> None:
    call = parse_embeddings(b'{"model": "m", "prompt": "a"}')
    assert call.query_request("m").parts == (Embed(inputs=("a",), normalize="none"),)
    one = [Embedded(vectors=(vector(3.0, 4.0),))]
    assert vector_answer(call, one) == {"embedding": [3.0, 4.0]}
    empty = parse_embeddings(b'{"model": "m"}')
    assert (empty.inputs, vector_answer(empty, [])) == ((), {"embedding": []})


@pytest.mark.parametrize("given", [b'"a"', b'["a"]'])
def test_the_older_call_takes_an_input_for_its_prompt(given: bytes) -> None:
    call = parse_embeddings(b'{"model": "m", "input": %b}' % given)
    assert call.query_request("m").parts == (Embed(inputs=("a",), normalize="none"),)
    assert call.place == "input"
    with pytest.raises(InvalidRequest, match="`input` must have at most 1 entries"):
        parse_embeddings(b'{"model": "m", "input": ["a", "b"]}')


@pytest.mark.parametrize(("body", "field"), [({"input": ["a", "b"]}, "input[1]")])
def test_a_faulty_input_is_named(body: dict[str, Any], field: str) -> None:
    fault = Vector(error=to_wire(PromptTooLong("too long")))
    with pytest.raises(PromptTooLong) as refused:
        embed(**body).vectors([Embedded(vectors=(vector(1.0), fault))])
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [({"input": 5}, "input"), ({"input": [""]}, "input[0]"), ({"dimensions": 0}, "dimensions")],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        embed(**({"input": "a"} | body))
    assert refused.value.field == field


def test_inputs_that_were_cut_are_told() -> None:
    cut = Vector(vector=vector(1.0).vector, num_tokens=9, num_cut=4)
    answer = vectors_answer(embed(input=["a", "b"]), [Embedded(vectors=(vector(1.0), cut))], 1)
    assert (answer["truncated"], answer["prompt_eval_count"]) == ([1], 12)
    assert "truncated" not in vectors_answer(embed(input=["a", "b"]), RESULTS, 1)


def test_nothing_is_cut_that_must_not_be() -> None:
    assert embed(input="a", truncate=False).query_request("m").parts == (Embed(inputs=("a",)),)
