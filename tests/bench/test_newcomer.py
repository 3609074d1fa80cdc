import pytest

from bench.figures import FIRST_TOKEN, LONGEST_GAP, RequestsFailed
from bench.newcomer import STREAMS_TOOK, figures
from bench.sample import Sample


def sample(*times: float, sent_at: float = 0.0) -> Sample:
    return Sample(sent_at, times[-1], token_times=times, num_tokens=len(times))


def test_the_longest_gap_while_the_prompt_is_read() -> None:
    streams = [sample(1.0, 4.5, 6.0, 8.0), sample(1.0, 2.0, 3.0)]
    found = figures(streams, sample(7.0, sent_at=4.0))
    assert (found[LONGEST_GAP], found[FIRST_TOKEN], found[STREAMS_TOOK]) == (3.5, 3.0, 8.0)


def test_streams_that_were_all_over_show_nothing() -> None:
    with pytest.raises(RequestsFailed, match="over before"):
        figures([sample(1.0, 2.0)], sample(7.0, sent_at=4.0))
