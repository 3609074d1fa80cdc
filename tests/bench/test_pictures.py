import base64

import pytest

from bench.dialects import Wish
from bench.figures import FIRST_TOKEN, LONGEST_GAP, RequestsFailed
from bench.pictures import BESIDE, PROMPT_TOKENS, asking, figures
from bench.sample import Sample


def sample(*times: float, sent_at: float = 0.0, num_prompt_tokens: int = 0) -> Sample:
    return Sample(
        sent_at,
        times[-1],
        token_times=times,
        num_tokens=len(times),
        num_prompt_tokens=num_prompt_tokens,
    )


def test_the_longest_gap_until_the_pictures_answer_begins() -> None:
    streams = [sample(1.0, 2.0, 6.0, 9.0), sample(1.0, 2.5, 3.0, 7.5, 20.0)]
    newcomer = sample(8.0, 30.0, sent_at=2.2, num_prompt_tokens=580)
    assert figures(streams, newcomer, since=0.0, until=99.0) == {
        LONGEST_GAP: 12.5,
        BESIDE: 1,
        FIRST_TOKEN: 5.8,
        PROMPT_TOKENS: 580,
    }


def test_with_nobody_beside_them_streams_are_watched_for_a_while() -> None:
    found = figures([sample(1.0, 2.0, 5.0, 9.0, 20.0)], None, since=1.5, until=6.0)
    assert found == {LONGEST_GAP: 4.0, BESIDE: 2}


def test_streams_that_end_too_early_show_nothing() -> None:
    with pytest.raises(RequestsFailed, match="over too early"):
        figures([sample(1.0, 2.0)], sample(4.0, sent_at=1.5), since=0.0, until=0.0)
    with pytest.raises(RequestsFailed, match="over too early"):
        figures([sample(1.0, 2.0)], None, since=0.0, until=3.0)


def test_a_question_about_a_picture() -> None:
    body = asking(b"png").body(Wish("What?", 8))
    [message] = body.pop("messages")
    image, text = message["content"]
    assert image["image_url"]["url"].endswith(base64.b64encode(b"png").decode())
    assert text == {"type": "text", "text": "What?"}
    assert body == {"max_tokens": 8, "ignore_eos": True, "temperature": 0}
