from arriero.balancer.api.common.embed_inputs import embed_query, named
from arriero.balancer.api.common.parts import MAX_PART_INPUTS, Faulty
from arriero.shared.errors import PromptTooLong
from arriero.shared.queries import Embed


def test_a_question_in_parts() -> None:
    query_request = embed_query(
        ["x"] * (MAX_PART_INPUTS + 1), model="m", pooling="cls", dimensions=3
    )
    assert (query_request.kind, query_request.model) == ("embed", "m")
    first, last = query_request.parts
    assert isinstance(first, Embed) and isinstance(last, Embed)
    assert (len(first.inputs), len(last.inputs)) == (MAX_PART_INPUTS, 1)
    assert (last.pooling, last.normalize, last.dimensions) == ("cls", "l2", 3)


def test_an_error_names_its_place() -> None:
    error = named(Faulty(3, PromptTooLong("it is 9 tokens long")), "input[3]")
    assert error == PromptTooLong("`input[3]`: it is 9 tokens long", field="input[3]")
