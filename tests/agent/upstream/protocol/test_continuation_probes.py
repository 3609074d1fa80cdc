import json

import pytest

from arriero.agent.upstream.protocol.continuation_probes import cut, going_on_probe, opening_probe
from arriero.agent.upstream.protocol.dialects import OLLAMA, SGLANG
from arriero.agent.upstream.protocol.probes import passes

COUNTED = "one, two, three, four, five, six, seven, eight"


def said(content: str | None) -> bytes:
    """A stream of two chunks with text, and one with counts."""
    half = None if content is None else len(content) // 2
    texts = [content, None] if content is None else [content[:half], content[half:]]
    chunks = [{"choices": [{"delta": {"content": each}}]} for each in texts]
    lines = [f"data: {json.dumps(each)}\n\n" for each in [*chunks, {"choices": []}]]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def test_the_answer_is_cut_before_a_word() -> None:
    assert cut(said(COUNTED)) == ("one, two, three, four, five,", " six, seven, eight")


@pytest.mark.parametrize(
    "answer",
    [
        said(None),
        said(""),
        said("one two"),
        said("no-space-in-all-of-this-answer"),
        said("twelve eggs and\n two lines of it"),
        said("ha ha ha ha ha ha ha ha ha ha"),
        b"",
        b"[]",
    ],
)
def test_of_other_answers_nothing_can_be_told(answer: bytes) -> None:
    assert cut(answer) is None
    assert going_on_probe("m", SGLANG, answer) is None


def test_the_first_half_is_given_as_the_assistants() -> None:
    probe = going_on_probe("m", SGLANG, said(COUNTED))
    assert probe is not None
    asked = opening_probe("m").body
    assert probe.body["messages"] == [
        *asked["messages"],
        {"role": "assistant", "content": "one, two, three, four, five,"},
    ]
    assert probe.body["continue_final_message"]
    plain = going_on_probe("m", OLLAMA, said(COUNTED))
    assert plain is not None and plain.body.keys() == asked.keys()


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (" six, seven, eight", True),
        (" six, sev", True),
        (" six, seven, eight, nine", True),
        ("six, seven, eight", False),
        ("one, two, three", False),
        (COUNTED, False),
        ("Sure! six, seven", False),
        (" six", False),
        ("", False),
        (None, False),
    ],
)
def test_only_who_says_the_second_half_goes_on(answer: str | None, goes_on: bool) -> None:
    probe = going_on_probe("m", SGLANG, said(COUNTED))
    assert probe is not None
    assert passes(probe, said(answer)) == goes_on
