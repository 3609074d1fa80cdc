import base64
import struct

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.common.vectors import encoded
from arriero.shared.queries import Vector


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_numbers_are_those_that_were_sent(values: list[float]) -> None:
    data = struct.pack(f"<{len(values)}f", *values)
    vector = Vector(vector=base64.b64encode(data).decode())
    assert encoded(vector, "float") == values
    assert encoded(vector, "base64") == vector.vector
