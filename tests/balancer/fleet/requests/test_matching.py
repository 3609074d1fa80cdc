import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.matching import Free, Waiting
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)
Q, R, S = RequestId("q"), RequestId("r"), RequestId("s")


def test_an_agent_serves_those_who_want_its_model_and_those_who_take_any() -> None:
    waiting = Waiting()
    assert waiting.first("llama") is None
    waiting.put(Q, "bert", 1.0)
    waiting.put(R, None, 3.0)
    waiting.put(S, "llama", 2.0)
    assert (waiting.first("llama"), waiting.first("bert"), waiting.first("gpt")) == (S, Q, R)
    waiting.put(S, "llama", 4.0)
    assert (waiting.first("llama"), len(waiting)) == (R, 3)
    waiting.remove(R)
    assert (waiting.first("llama"), R in waiting) == (S, False)
    with pytest.raises(KeyError):
        waiting.remove(R)
    waiting.check_integrity()


def test_who_waits_in_vain() -> None:
    waiting = Waiting()
    waiting.put(Q, "bert", 1.0)
    waiting.put(R, None, 2.0)
    assert waiting.stranded(()) == [Q, R]
    assert waiting.stranded({None, "llama"}) == [Q]
    assert waiting.stranded({None, "bert"}) == []


def test_the_agent_with_the_lowest_load_is_first() -> None:
    free = Free()
    free.put(A, "llama", 0.5, 1)
    free.put(B, "bert", 0.5, 0)
    assert (free.first(None), free.first("llama"), free.first("gpt")) == (B, A, None)
    free.put(A, "llama", 0.25, 1)
    assert free.first(None) == A
    free.put(A, "bert", 0.75, 2)
    assert (free.first("llama"), free.first("bert")) == (None, B)
    free.discard(B)
    free.discard(B)
    assert (free.first(None), B in free, A in free) == (A, False, True)
    free.check_integrity()
