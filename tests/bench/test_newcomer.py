import pytest

from bench.figures import FIRST_TOKEN, LONGEST_GAP, RequestsFailed
from bench.newcomer import figures
from bench.sample import Sample


def sample(*times: float, sent_at: float = 0.0) -> Sample:
    return Sample(sent_at, times[-1], token_times=times, num_tokens=len(times))


def test_the_longest_gap_while_the_prompt_is_read() -> None:
    streams = [sample(1.0, 2.0, 6.0, 9.0), sample(1.0, 2.5, 7.5, 8.0)]
    newcomer = sample(7.0, 8.0, sent_at=2.2)
    assert figures(streams, newcomer) == {LONGEST_GAP: 5.0, FIRST_TOKEN: 4.8}


def test_a_stream_that_ends_too_early_shows_nothing() -> None:
    early, late = sample(1.0, 2.0, 3.0), sample(4.0, sent_at=1.5)
    with pytest.raises(RequestsFailed, match="over before"):
        figures([early], late)
    assert figures([early], late, may_end=True)[LONGEST_GAP] == 1.0
    with pytest.raises(RequestsFailed, match="over before"):
        figures([early], sample(9.0, sent_at=8.0), may_end=True)


def test_a_failed_stream_shows_nothing() -> None:
    failed = Sample(0.0, 1.0, failure="499")
    with pytest.raises(RequestsFailed, match="499"):
        figures([failed], sample(4.0))
