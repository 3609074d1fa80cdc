"""Token ids travel packed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from arriero.shared.continuation import Continuation

ADAPTER: TypeAdapter[Continuation] = TypeAdapter(Continuation)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_token_ids_survive_the_wire(tokens: list[int]) -> None:
    sent = Continuation.after(tokens, num_characters=7)
    received = ADAPTER.validate_json(ADAPTER.dump_json(sent))
    assert received == sent
    assert received.tokens == tuple(tokens)


def test_ids_are_little_endian() -> None:
    assert Continuation.after([1, 258]).packed_tokens == bytes([1, 0, 0, 0, 2, 1, 0, 0])


def test_a_torn_id_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        _ = Continuation(packed_tokens=b"abc").tokens


def test_text_goes_alone_and_only_where_there_is_some() -> None:
    by_text = Continuation(text="Hé", num_tokens=2, num_characters=2)
    assert ADAPTER.validate_json(ADAPTER.dump_json(by_text)) == by_text
    assert by_text.is_by_text
    by_ids = Continuation.after((1, 2), num_characters=2)
    assert not by_ids.is_by_text
    assert b"text" not in ADAPTER.dump_json(by_ids)
    assert b"num_tokens" not in ADAPTER.dump_json(by_ids)
