import json

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from arriero.balancer.api.common.log_probs import PackedLogProbs, entries, text_of
from arriero.shared.inference import LogProb, TokenLogProbs

A = LogProb(7, b"a", -0.25)
PART = LogProb(8, "☃".encode()[:2], -1.5)


def test_a_part_of_a_character_is_spelled_out() -> None:
    assert text_of(A) == "a"
    assert text_of(PART) == r"\xe2\x98"


def test_an_entry_has_the_token_its_bytes_and_the_likeliest() -> None:
    told_a = {"token": "a", "logprob": -0.25, "bytes": [97]}
    told_part = {"token": r"\xe2\x98", "logprob": -1.5, "bytes": [0xE2, 0x98]}
    assert entries([TokenLogProbs(A), TokenLogProbs(PART, (A, PART))]) == [
        told_a | {"top_logprobs": []},
        told_part | {"top_logprobs": [told_a, told_part]},
    ]


@given(st.binary(max_size=20), st.floats(-9999.0, 0.0))
def test_any_bytes_can_be_told(piece: bytes, log_prob: float) -> None:
    told = json.loads(to_json(entries([TokenLogProbs(LogProb(1, piece, log_prob))])))
    assert bytes(told[0]["bytes"]) == piece
    assert told[0]["logprob"] == log_prob
    assert isinstance(told[0]["token"], str)


LOG_PROBS = st.builds(
    LogProb, st.integers(0, 2**31 - 1), st.binary(max_size=20), st.none() | st.floats(-1e5, 0)
)


@given(st.lists(st.builds(TokenLogProbs, LOG_PROBS, st.lists(LOG_PROBS, max_size=3).map(tuple))))
def test_what_is_packed_comes_out_as_it_was(log_probs: list[TokenLogProbs]) -> None:
    packed = PackedLogProbs()
    packed.add(log_probs[:1])
    packed.add(log_probs[1:])
    assert (list(packed), len(packed)) == (log_probs, len(log_probs))
    assert packed[1:] == log_probs[1:]
    assert [packed[place] for place in range(len(packed))] == log_probs
