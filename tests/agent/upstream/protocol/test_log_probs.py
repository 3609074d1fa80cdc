import pytest

from arriero.agent.upstream.protocol.log_probs import LEAST, log_probs_of
from arriero.shared.inference import LogProb, TokenLogProbs

A, B = LogProb(0, b"a", -0.5), LogProb(0, b"b", -1.0)


def test_those_of_chats() -> None:
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -1.0}]
    told = {"content": [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": top}]}
    assert list(log_probs_of(told)) == [TokenLogProbs(A, (A, B))]


def test_those_of_completions() -> None:
    told = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.0}]}
    assert list(log_probs_of(told)) == [TokenLogProbs(A, (A, B))]
    bare = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": None}
    assert list(log_probs_of(bare)) == [TokenLogProbs(LogProb(0, b"a", None))]


def test_parts_of_characters_and_ids_where_a_server_tells_them() -> None:
    entry = {"id": 7, "token": "\ufffd", "logprob": -0.5, "bytes": [0xE2]}
    assert list(log_probs_of({"content": [entry]})) == [TokenLogProbs(LogProb(7, b"\xe2", -0.5))]


def test_numbers_are_bounded() -> None:
    entries = [{"token": "a", "logprob": value} for value in (-1e30, 1e-9)]
    found = [each.chosen.log_prob for each in log_probs_of({"content": entries})]
    assert found == [LEAST, 0.0]


def test_none_at_all() -> None:
    assert list(log_probs_of(None)) == []
    assert list(log_probs_of({"content": None})) == []


@pytest.mark.parametrize("told", [{"content": [{}]}, {"tokens": ["a"]}, {"content": ["a"]}])
def test_another_shape_is_an_error_that_is_told_as_such(told: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, IndexError, AttributeError)):
        list(log_probs_of(told))
