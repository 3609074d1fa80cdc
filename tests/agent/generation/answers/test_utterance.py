import re
from itertools import accumulate

from arriero.agent.chat.calls.tools import Tools
from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.output.attribution import Attribution
from arriero.agent.chat.output.transcript import Gain, Stops, Transcript
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.generation.answers.prepared import Reading
from arriero.agent.generation.answers.utterance import Utterance
from arriero.shared.inference import RequestId
from arriero.shared.messages import Called, CallStarted, Item, Noticed, Piece

R = RequestId("r")
TOOLS = Tools([{"type": "function", "function": {"name": "now"}}])


def make(
    *, is_thinking: bool = False, tools: Tools | None = TOOLS, family: str = "qwen"
) -> Utterance:
    reading = Reading(family=family_named(family), is_thinking=is_thinking, tools=tools)
    return Utterance(R, reading)


def test_without_a_reading_all_is_content() -> None:
    utterance = Utterance(R, None)
    assert utterance.take(Gain("<think>", (1,))) == [Piece(id=R, text="<think>", tokens=(1,))]
    assert utterance.take(Gain("", (2,))) == [Piece(id=R, text="", tokens=(2,))]
    assert utterance.take(Gain()) == []
    assert utterance.flush() == []


def test_reasoning_is_told_apart() -> None:
    utterance = make()
    assert utterance.take(Gain("<think>", (1,), (7,))) == [
        Piece(id=R, text="", kind="reasoning", tokens=(1,))
    ]
    assert utterance.take(Gain("hm", (2,), (9,))) == [
        Piece(id=R, text="hm", kind="reasoning", tokens=(2,))
    ]
    assert utterance.take(Gain("</think>a", (3,), (18,))) == [Piece(id=R, text="a", tokens=(3,))]
    assert utterance.take(Gain("b", (4,), (19,))) == [Piece(id=R, text="b", tokens=(4,))]
    assert utterance.num_reasoning_tokens == 3


def test_reasoning_is_counted_however_many_tokens_a_step_has() -> None:
    tokens = ["<th", "ink>", "h", "m", "</", "think", ">", "\n\n", "a", "b"]
    ends = list(accumulate(map(len, tokens)))
    for size in range(1, len(tokens) + 1):
        utterance = make()
        for start in range(0, len(tokens), size):
            part = slice(start, start + size)
            numbers = tuple(range(len(tokens))[part])
            utterance.take(Gain("".join(tokens[part]), numbers, tuple(ends[part])))
        assert utterance.num_reasoning_tokens == 7


def test_reasoning_that_is_cut_off_is_counted() -> None:
    utterance = make(is_thinking=True)
    utterance.take(Gain("hm </th", (1, 2, 3), (2, 3, 7)))
    assert utterance.num_reasoning_tokens == 3


def test_a_call() -> None:
    utterance = make()
    started, piece, called = utterance.take(
        Gain('<tool_call>{"name": "now", "arguments": {}}</tool_call>', (1, 2))
    )
    assert isinstance(started, CallStarted)
    assert re.fullmatch("[0-9A-Za-z]{9}", started.call_id)
    assert started.name == "now"
    assert piece == Piece(id=R, text="{}", kind="tool_call", tokens=(1, 2))
    assert called == Called(id=R, call_id=started.call_id, name="now", arguments="{}")
    assert utterance.num_calls == 1


def test_calls_have_ids_of_their_own() -> None:
    text = '<tool_call>{"name": "now"}{"name": "now"}</tool_call>'
    ids = [item.call_id for item in make().take(Gain(text)) if isinstance(item, Called)]
    assert len(set(ids)) == 2
    again = [item.call_id for item in make().take(Gain(text)) if isinstance(item, Called)]
    assert ids == again


def test_an_id_that_the_model_writes_is_kept() -> None:
    text = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    called = make(family="kimi").take(Gain(text))[-1]
    assert isinstance(called, Called)
    assert called.call_id == "functions.now:0"


def test_a_call_that_does_not_fit_is_passed_on_with_a_notice() -> None:
    _, _, called, noticed = make().take(Gain('<tool_call>{"name": "then", "arguments": {}}'))
    assert isinstance(called, Called)
    assert noticed == Noticed(
        id=R,
        code="tool_call_mismatch",
        message=f"call {called.call_id}: there is no tool 'then'",
    )


def test_a_call_that_breaks_off_is_passed_on_as_far_as_it_came() -> None:
    utterance = make()
    utterance.take(Gain('<tool_call>{"name": "now", "arguments": {"a', (1,)))
    called, noticed = utterance.flush()
    assert isinstance(called, Called)
    assert called.arguments == '{"a'
    assert isinstance(noticed, Noticed)


def test_held_text_comes_at_the_end() -> None:
    utterance = make()
    assert utterance.take(Gain("a <tool", (1,))) == [Piece(id=R, text="a", tokens=(1,))]
    assert utterance.flush() == [Piece(id=R, text=" <tool")]


SPOKEN = (b"<think>", b"hm", b"</think>", b"a ", b"b<", b"tool_call>", b'{"name": "now"}', b"")


def explained(*tokens: int, reading: bool = True) -> list[Item]:
    """What is said where log-probabilities are asked for, one token after the other."""
    attribution = Attribution(SPOKEN.__getitem__)
    qwen = Reading(family=family_named("qwen"), is_thinking=False, tools=TOOLS)
    utterance = Utterance(R, qwen if reading else None, attribution)
    transcript = Transcript(SPOKEN.__getitem__, Stops())
    items: list[Item] = []
    for token in tokens:
        gain = transcript.push((token,))
        attribution.push(gain.ends, [LogProbs(token, -1.0)])
        items += utterance.take(gain)
    return [*items, *utterance.flush(), *utterance.rest()]


def told(items: list[Item]) -> list[tuple[str, str, list[int]]]:
    return [
        (item.kind, item.text, [each.chosen.token for each in item.log_probs or ()])
        for item in items
        if isinstance(item, Piece) and (item.text or item.log_probs)
    ]


def test_log_probabilities_go_with_the_piece_that_shows_their_token() -> None:
    assert told(explained(0, 1, 2, 3, 4)) == [
        ("reasoning", "hm", [1]),
        ("content", "a", [3]),
        ("content", " b", [4]),
        ("content", "<", []),
    ]


def test_markers_and_names_of_calls_have_none_to_tell() -> None:
    assert told(explained(3, 4, 5, 6)) == [
        ("content", "a", [3]),
        ("content", " b", [4]),
        ("tool_call", "{}", []),
    ]


def test_without_a_reading_all_are_told() -> None:
    assert told(explained(0, 3, 7, reading=False)) == [
        ("content", "<think>", [0]),
        ("content", "a ", [3]),
        ("content", "", [7]),
    ]
