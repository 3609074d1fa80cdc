import base64
import struct

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.embeddings import EmbedBodyFields, encoded, named
from arriero.balancer.api.common.parts import MAX_PART_INPUTS, Faulty
from arriero.shared.errors import PromptTooLong
from arriero.shared.queries import Embed, Vector


def test_a_query_in_parts() -> None:
    fields = EmbedBodyFields(
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


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_numbers_are_those_that_were_sent(values: list[float]) -> None:
    data = struct.pack(f"<{len(values)}f", *values)
    vector = Vector(vector=base64.b64encode(data).decode())
    assert encoded(vector, "float") == values
    assert encoded(vector, "base64") == vector.vector
