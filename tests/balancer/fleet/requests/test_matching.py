import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.eligibility import Engine
from arriero.balancer.fleet.requests.matching import Free, Queues
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)
LLAMA, BERT, GPT = (None, "llama"), (None, "bert"), (None, "gpt")
ENGINE = Engine("llama", "abc")
Q, R, S = RequestId("q"), RequestId("r"), RequestId("s")


def test_an_agent_serves_those_who_want_its_model_and_those_who_take_any() -> None:
    waiting = Queues()
    assert waiting.first(LLAMA) is None
    waiting.put(Q, "bert", 1.0)
    waiting.put(R, None, 3.0)
    waiting.put(S, "llama", 2.0)
    assert (waiting.first(LLAMA), waiting.first(BERT), waiting.first(GPT)) == (S, Q, R)
    waiting.put(S, "llama", 4.0)
    assert (waiting.first(LLAMA), len(waiting)) == (R, 3)
    waiting.remove(R)
    assert (waiting.first(LLAMA), R in waiting) == (S, False)
    with pytest.raises(KeyError):
        waiting.remove(R)
    waiting.check_integrity()


def test_who_waits_in_vain() -> None:
    waiting = Queues()
    waiting.put(Q, "bert", 1.0)
    waiting.put(R, None, 2.0)
    assert waiting.stranded(()) == [Q, R]
    assert waiting.stranded({None, "llama"}) == [Q]
    assert waiting.stranded({None, "bert"}) == []


def test_the_agent_with_the_lowest_load_is_first() -> None:
    free = Free()
    free.put(A, LLAMA, 0.5, 1)
    free.put(B, BERT, 0.5, 0)
    assert (free.first(None), free.first("llama"), free.first("gpt")) == (B, A, None)
    free.put(A, LLAMA, 0.25, 1)
    assert free.first(None) == A
    free.put(A, BERT, 0.75, 2)
    assert (free.first("llama"), free.first("bert")) == (None, B)
    free.discard(B)
    free.discard(B)
    assert (free.first(None), B in free, A in free) == (A, False, True)
    free.check_integrity()


def test_who_waits_for_an_engine_waits_for_no_other_of_that_model() -> None:
    waiting = Queues()
    waiting.put(Q, ENGINE, 1.0)
    waiting.put(R, "llama", 2.0)
    assert (waiting.first(LLAMA), waiting.first((*LLAMA, ENGINE))) == (R, Q)
    assert waiting.stranded(LLAMA) == [Q]
    assert waiting.of("llama") == [R]
    assert sorted(waiting.models()) == [("llama", 1, Q), ("llama", 1, R)]
    free = Free()
    free.put(A, LLAMA, 0.0, 0)
    assert free.first(ENGINE) is None
    free.put(A, (*LLAMA, ENGINE), 0.0, 0)
    assert free.first(ENGINE) == A
    free.put(A, LLAMA, 0.0, 0)
    assert free.first(ENGINE) is None
    free.check_integrity()
