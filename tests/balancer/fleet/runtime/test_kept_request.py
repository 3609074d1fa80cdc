"""One kept request: readers come and go, and it knows how large it is."""

from arriero.balancer.fleet.kept_record import KeptKey, KeptRecord
from arriero.balancer.fleet.runtime.kept_request import EVENT_BYTES, KeptRequest
from arriero.shared.inference import LogProb, RequestId, Token, TokenLogProbs, Waiting
from tests.balancer.api.fake_runtime import done

RECORD = KeptRecord(KeptKey(None, "k"), RequestId("r"), b"", created_at=12.5, model="demo")


def test_its_size_is_that_of_its_events_and_its_note() -> None:
    sizes: list[int] = []
    kept = KeptRequest(RECORD, lambda _, size: sizes.append(size), note=b"123")
    top = TokenLogProbs(LogProb(1, b"x"), (LogProb(2, b"y"),))
    for event in (Waiting(1, "slot"), Token("ab"), Token("", log_probs=(top,)), done()):
        kept.put(event)
    assert sizes == [EVENT_BYTES + 4, 3 * EVENT_BYTES, EVENT_BYTES]
    assert kept.num_bytes == 3 + sum(sizes)


def test_its_streams_say_when_it_was_asked_for_and_which_model_answers() -> None:
    stream = KeptRequest(RECORD, lambda _, __: None).attach()
    assert (stream.created_at, stream.model) == (12.5, "demo")


def test_a_forgotten_one_keeps_no_events_until_it_has_ended() -> None:
    kept = KeptRequest(RECORD, lambda _, __: None)
    kept.put(Token("a"))
    kept.forget()
    kept.put(Token("b"))
    assert kept.events == []
