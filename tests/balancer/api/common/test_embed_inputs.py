from arriero.balancer.api.common.embed_inputs import EmbedFields, named
from arriero.balancer.api.common.parts import MAX_PART_INPUTS, Faulty
from arriero.shared.errors import PromptTooLong
from arriero.shared.queries import Embed


def test_a_query_in_parts() -> None:
    fields = EmbedFields(
        input=("x",) * (MAX_PART_INPUTS + 1), model="m", pooling="cls", dimensions=3
    )
    query_request = fields.query()
    assert (query_request.kind, query_request.model) == ("embed", "m")
    first, last = query_request.parts
    assert isinstance(first, Embed) and isinstance(last, Embed)
    assert (len(first.inputs), len(last.inputs)) == (MAX_PART_INPUTS, 1)
    assert (last.pooling, last.normalize, last.dimensions) == ("cls", "l2", 3)


def test_an_error_names_its_place() -> None:
    error = named(Faulty(3, PromptTooLong("it is 9 tokens long")), "input[3]")
    assert error == PromptTooLong("`input[3]`: it is 9 tokens long", field="input[3]")
