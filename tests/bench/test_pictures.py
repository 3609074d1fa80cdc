import base64

from bench.endless_streams import Watched
from bench.figures import FIRST_TOKEN, LONGEST_GAP
from bench.pictures import BESIDE, PROMPT_TOKENS, asking, figures


def test_what_a_newcomer_costs_and_waits() -> None:
    watched = Watched(gap=0.25, seconds=5.8, num_tokens=40)
    assert figures("picture", watched, {PROMPT_TOKENS: 580}) == {
        LONGEST_GAP: 0.25,
        BESIDE: 40,
        FIRST_TOKEN: 5.8,
        PROMPT_TOKENS: 580,
    }
    assert figures("alone", watched, {}) == {LONGEST_GAP: 0.25, BESIDE: 40}


def test_a_question_about_a_picture() -> None:
    [message] = asking("What?", b"png")["messages"]
    image, text = message["content"]
    assert image["image_url"]["url"].endswith(base64.b64encode(b"png").decode())
    assert text == {"type": "text", "text": "What?"}
    [message] = asking("What?", None)["messages"]
    assert message["content"] == [text]
