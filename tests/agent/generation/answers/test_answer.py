import re
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.output.attribution import Attribution
from arriero.agent.chat.output.transcript import Gain, Stops, Transcript
from arriero.agent.chat.parsing.tools import Tools
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import SequenceEnd, SequenceId, SequenceOutput, SequenceStats
from arriero.agent.generation.answers.answer import Answer, EchoPart, EchoWriter, Turn, rates
from arriero.agent.generation.answers.prepared import Echo, Parsing
from arriero.shared.errors import EngineFailed, to_wire
from arriero.shared.inference import LogProb, Notice, Rates, RequestId, TokenLogProbs, Usage
from arriero.shared.messages import (
    Called,
    CallStarted,
    Ended,
    Item,
    Noticed,
    Piece,
    PromptProgress,
    PromptRead,
    Refused,
)
from tests.agent.generation.outputs import make_prepared

R = RequestId("r")
READ = PromptRead(id=R, prompt_tokens=30, cached_tokens=10)
PIECES = [b"Hello", b" w\xc3", b"\xb6rld", b"STOP"]


def stats(num_tokens: int) -> SequenceStats:
    return SequenceStats(
        prompt_tokens=30,
        cached_tokens=10,
        completion_tokens=num_tokens,
        prefill_tokens=20,
        prefill_seconds=0.5,
        decode_seconds=2.0,
    )


def make(*stop: str) -> Answer:
    prepared = make_prepared(
        prompt=Prompt(tuple(range(30))),
        sampling=Sampling(seed=1),
        max_tokens=None,
        stop=Stops(stop),
    )
    return Answer(R, prepared, PIECES.__getitem__)


def output(*tokens: int, end: SequenceEnd | None = None) -> SequenceOutput:
    return SequenceOutput(SequenceId(1), tokens, end, stats=stats(5))


def test_tokens_become_pieces_at_once_even_without_text() -> None:
    answer = make()
    assert answer.take(output(0)) == [READ, Piece(id=R, text="Hello", tokens=(0,))]
    assert answer.take(output(1)) == [Piece(id=R, text=" w", tokens=(1,))]
    assert answer.take(output(2)) == [Piece(id=R, text="örld", tokens=(2,))]
    assert not answer.is_over


def test_the_end_comes_after_the_last_piece_with_usage_and_rates() -> None:
    answer = make()
    assert answer.take(output(0, end=SequenceEnd("length", stats(5)))) == [
        READ,
        Piece(id=R, text="Hello", tokens=(0,)),
        Ended(
            id=R,
            finish_reason="length",
            usage=Usage(prompt_tokens=30, cached_tokens=10, completion_tokens=1),
            rates=Rates(prefill_tokens_per_second=40.0, decode_tokens_per_second=2.0),
        ),
    ]
    assert answer.is_over


def test_text_that_was_held_back_comes_before_the_end() -> None:
    answer = make("Hello world")
    assert answer.take(output(0)) == [READ, Piece(id=R, text="", tokens=(0,))]
    held, end = answer.take(output(end=SequenceEnd("stop", stats(1))))
    assert held == Piece(id=R, text="Hello")
    assert isinstance(end, Ended)


def test_a_stop_string_ends_the_answer_before_the_engine_does() -> None:
    answer = make("STOP")
    _, piece, end = answer.take(output(0, 3, 2))
    assert piece == Piece(id=R, text="Hello", tokens=(0, 3))
    assert end == Ended(
        id=R,
        finish_reason="stop",
        stop_string="STOP",
        usage=Usage(prompt_tokens=30, cached_tokens=10, completion_tokens=2),
        rates=Rates(prefill_tokens_per_second=40.0, decode_tokens_per_second=2.0),
    )
    assert answer.is_over


def test_a_stop_string_in_the_last_token_is_the_reason() -> None:
    *_, end = make("STOP").take(output(3, end=SequenceEnd("length", stats(1))))
    assert isinstance(end, Ended)
    assert end.finish_reason == "stop"


def test_an_error_ends_the_answer() -> None:
    answer = make()
    error = EngineFailed("the step failed")
    assert answer.take(output(end=SequenceEnd(error, stats(0)))) == [
        Refused(id=R, error=to_wire(error))
    ]
    assert answer.is_over


def test_notices_come_before_what_follows_them() -> None:
    answer = make()
    noticed = SequenceOutput(
        SequenceId(1), (0,), notices=(Notice("n_discard_clamped", "too many"),)
    )
    assert answer.take(noticed) == [
        Noticed(id=R, code="n_discard_clamped", message="too many"),
        Piece(id=R, text="Hello", tokens=(0,)),
    ]


def test_cancelling_keeps_what_was_gained() -> None:
    answer = make()
    answer.take(output(0))
    assert answer.cancel() == Ended(
        id=R,
        finish_reason="cancelled",
        usage=Usage(prompt_tokens=30, cached_tokens=10, completion_tokens=1),
        rates=Rates(prefill_tokens_per_second=40.0, decode_tokens_per_second=2.0),
    )
    assert answer.is_over


def test_rates_count_the_tokens_after_the_last_counts_of_the_engine() -> None:
    answer = make()
    answer.take(output(0))
    answer.take(SequenceOutput(SequenceId(1), (0, 0), decode_seconds=3.0))
    assert answer.cancel().rates.decode_tokens_per_second == 2.0


def test_what_was_cancelled_before_it_said_anything_has_no_rates() -> None:
    ended = make().cancel()
    assert (ended.usage, ended.rates) == (Usage(prompt_tokens=30), Rates())


@pytest.mark.parametrize(
    ("num_tokens", "has_end_token", "decode_rate"),
    [
        # The last prefill step gave the first of five tokens: four steps in two seconds.
        (5, False, 2.0),
        # The end-of-generation token took a fifth step and is not among the five.
        (5, True, 2.5),
        (1, False, None),
        (0, True, None),
    ],
)
def test_decode_rate_counts_the_steps_that_generated(
    num_tokens: int, has_end_token: bool, decode_rate: float | None
) -> None:
    found = rates(stats(num_tokens), has_end_token=has_end_token)
    assert found.decode_tokens_per_second == decode_rate


def test_rates_without_such_steps_are_not_available() -> None:
    nothing = SequenceStats(
        prompt_tokens=8,
        cached_tokens=0,
        completion_tokens=4,
        prefill_tokens=0,
        prefill_seconds=None,
        decode_seconds=0.0,
    )
    assert rates(nothing, has_end_token=False) == Rates()
    assert rates(None, has_end_token=False) == Rates()


QWEN = Parsing(
    family=family_named("qwen"),
    is_thinking=False,
    tools=Tools([{"type": "function", "function": {"name": "now"}}]),
    shown={7: b"<think>"},
)
SPOKEN = {1: b"hm", 2: b"</think>", 3: b'<tool_call>{"name": "now"}', 7: b"", 8: b"STOP"}


def reading_answer(*stop: str) -> Answer:
    prepared = make_prepared(
        prompt=Prompt((0,)),
        sampling=Sampling(seed=1),
        max_tokens=None,
        stop=Stops(stop),
        parsing=QWEN,
    )
    return Answer(R, prepared, SPOKEN.__getitem__)


def test_control_tokens_show_where_they_are_markers_and_reasoning_is_counted() -> None:
    answer = reading_answer()
    _, *items = (item for token in (7, 1, 2) for item in answer.take(output(token)))
    assert "".join(item.text for item in items if item.kind == "reasoning") == "hm"
    (end,) = answer.take(output(end=SequenceEnd("stop", stats(3))))
    assert isinstance(end, Ended)
    assert end.finish_reason == "stop"
    assert end.usage.reasoning_tokens == 3


@pytest.mark.parametrize(("reason", "finish"), [("stop", "tool_calls"), ("length", "length")])
def test_an_answer_that_calls_ends_with_its_calls(reason: Any, finish: str) -> None:
    answer = reading_answer()
    *_, end = answer.take(output(3, end=SequenceEnd(reason, stats(1))))
    assert isinstance(end, Ended)
    assert end.finish_reason == finish


def test_what_a_marker_might_have_been_comes_before_a_stop_strings_end() -> None:
    answer = reading_answer("STOP")
    *_, held, end = answer.take(output(1, 8))
    assert isinstance(held, Piece)
    assert isinstance(end, Ended)
    assert end.finish_reason == "stop"


def explaining(*stop: str) -> Answer:
    sampling = Sampling(seed=1, top_log_probs=0)
    prepared = make_prepared(
        prompt=Prompt((0,)), sampling=sampling, max_tokens=None, stop=Stops(stop)
    )
    return Answer(R, prepared, PIECES.__getitem__)


def explained(*tokens: int, end: SequenceEnd | None = None) -> SequenceOutput:
    log_probs = tuple(LogProbs(token, -1.0) for token in tokens)
    return SequenceOutput(SequenceId(1), tokens, end, log_probs=log_probs)


def tokens_told(items: list[Any]) -> list[int]:
    return [each.chosen.token for item in items for each in getattr(item, "log_probs", ()) or ()]


def test_log_probabilities_of_what_a_stop_string_cut_off_are_not_told() -> None:
    answer = explaining("STOP")
    assert tokens_told(answer.take(explained(0))) == [0]
    assert tokens_told(answer.take(explained(3, 0))) == []
    assert answer.is_over


def test_log_probabilities_wait_with_the_text_that_is_held_back() -> None:
    answer = explaining(" wörldly")
    assert tokens_told(answer.take(explained(0, 1))) == [0]
    assert tokens_told(answer.take(explained(2))) == []
    *held, _ = answer.take(explained(end=SequenceEnd("length", stats(3))))
    assert tokens_told(held) == [1, 2]


def test_log_probabilities_are_told_of_an_unfinished_character() -> None:
    answer = explaining()
    items = answer.take(explained(0, 1, end=SequenceEnd("length", stats(2))))
    assert tokens_told(items) == [0, 1]


def test_log_probabilities_that_nobody_asked_for_are_not_told() -> None:
    prepared = make_prepared(
        prompt=Prompt((0,)), sampling=Sampling(seed=1), max_tokens=None, stop=Stops()
    )
    (piece,) = Answer(R, prepared, PIECES.__getitem__).take(explained(0))
    assert isinstance(piece, Piece)
    assert piece.log_probs is None


def test_a_prompt_that_is_explained_comes_first_and_its_answers_end_token_last() -> None:
    prepared = make_prepared(
        prompt=Prompt((0, 3)),
        sampling=Sampling(seed=1, top_log_probs=0),
        max_tokens=None,
        stop=Stops(),
        echo=Echo("given"),
    )
    answer = Answer(R, prepared, PIECES.__getitem__)
    first = SequenceOutput(SequenceId(1), prompt_log_probs=(LogProbs(3, -0.5),))
    chosen = TokenLogProbs(LogProb(0, b"Hello", -1.0))
    assert answer.take(first) == [
        Piece(
            id=R,
            text="given",
            kind="prompt",
            log_probs=(
                TokenLogProbs(LogProb(0, b"Hello")),
                TokenLogProbs(LogProb(3, b"STOP", -0.5)),
            ),
        )
    ]
    end = SequenceEnd("stop", stats(1))
    last = SequenceOutput(
        SequenceId(1), (0,), end, log_probs=(LogProbs(0, -1.0), LogProbs(3, -2.0))
    )
    read, *pieces, ended = answer.take(last)
    assert isinstance(read, PromptRead)
    assert pieces == [
        Piece(id=R, text="Hello", tokens=(0,), log_probs=(chosen,)),
        Piece(id=R, text="", log_probs=(TokenLogProbs(LogProb(3, b"STOP", -2.0)),)),
    ]
    assert isinstance(ended, Ended)
    assert ended.usage.completion_tokens == 1


def test_how_long_the_prompt_is_comes_once_and_not_of_a_failure() -> None:
    answer = make()
    early = SequenceOutput(SequenceId(1), notices=(Notice("x", "y"),))
    assert [item.type for item in answer.take(early)] == ["noticed"]
    told = [*answer.take(output(0)), *answer.take(output(1))]
    assert [item for item in told if isinstance(item, PromptRead)] == [READ] == told[:1]
    failed = make().take(output(end=SequenceEnd(EngineFailed("no"), stats(0))))
    assert [item.type for item in failed] == ["refused"]


def test_how_much_of_the_prompt_is_read_is_told_before_anything_of_the_answer() -> None:
    answer = make()
    told = answer.take(SequenceOutput(SequenceId(1), stats=stats(0), num_read=20))
    assert told == [PromptProgress(id=R, prompt_tokens=30, read_tokens=20, cached_tokens=10)]
    assert [item.type for item in answer.take(output(0))] == ["prompt_read", "piece"]


# ---- content, reasoning and calls

TOOLS = Tools([{"type": "function", "function": {"name": "now"}}])


def spoken(*, is_thinking: bool = False, tools: Tools | None = TOOLS, family: str = "qwen") -> Turn:
    parsing = Parsing(family=family_named(family), is_thinking=is_thinking, tools=tools)
    return Turn(R, parsing)


def test_without_a_reading_all_is_content() -> None:
    turn = Turn(R, None)
    assert turn.take(Gain("<think>", (1,))) == [Piece(id=R, text="<think>", tokens=(1,))]
    assert turn.take(Gain("", (2,))) == [Piece(id=R, text="", tokens=(2,))]
    assert turn.take(Gain()) == []
    assert turn.flush() == []


def test_reasoning_is_told_apart() -> None:
    turn = spoken()
    assert turn.take(Gain("<think>", (1,), (7,))) == [
        Piece(id=R, text="", kind="reasoning", tokens=(1,))
    ]
    assert turn.take(Gain("hm", (2,), (9,))) == [
        Piece(id=R, text="hm", kind="reasoning", tokens=(2,))
    ]
    assert turn.take(Gain("</think>a", (3,), (18,))) == [Piece(id=R, text="a", tokens=(3,))]
    assert turn.take(Gain("b", (4,), (19,))) == [Piece(id=R, text="b", tokens=(4,))]
    assert turn.num_reasoning_tokens == 3


def test_reasoning_is_counted_however_many_tokens_a_step_has() -> None:
    tokens = ["<th", "ink>", "h", "m", "</", "think", ">", "\n\n", "a", "b"]
    ends = list(accumulate(map(len, tokens)))
    for size in range(1, len(tokens) + 1):
        turn = spoken()
        for start in range(0, len(tokens), size):
            part = slice(start, start + size)
            numbers = tuple(range(len(tokens))[part])
            turn.take(Gain("".join(tokens[part]), numbers, tuple(ends[part])))
        assert turn.num_reasoning_tokens == 7


def test_reasoning_that_is_cut_off_is_counted() -> None:
    turn = spoken(is_thinking=True)
    turn.take(Gain("hm </th", (1, 2, 3), (2, 3, 7)))
    assert turn.num_reasoning_tokens == 3


def test_a_call() -> None:
    turn = spoken()
    started, piece, called = turn.take(
        Gain('<tool_call>{"name": "now", "arguments": {}}</tool_call>', (1, 2))
    )
    assert isinstance(started, CallStarted)
    assert re.fullmatch("[0-9A-Za-z]{9}", started.call_id)
    assert started.name == "now"
    assert piece == Piece(id=R, text="{}", kind="tool_call", tokens=(1, 2))
    assert called == Called(id=R, call_id=started.call_id, name="now", arguments="{}")
    assert turn.num_calls == 1


def test_calls_have_ids_of_their_own() -> None:
    text = '<tool_call>{"name": "now"}{"name": "now"}</tool_call>'
    ids = [item.call_id for item in spoken().take(Gain(text)) if isinstance(item, Called)]
    assert len(set(ids)) == 2
    again = [item.call_id for item in spoken().take(Gain(text)) if isinstance(item, Called)]
    assert ids == again


def test_an_id_that_the_model_writes_is_kept() -> None:
    text = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    called = spoken(family="kimi").take(Gain(text))[-1]
    assert isinstance(called, Called)
    assert called.call_id == "functions.now:0"


def test_a_call_that_does_not_fit_is_passed_on_with_a_notice() -> None:
    _, _, called, noticed = spoken().take(Gain('<tool_call>{"name": "then", "arguments": {}}'))
    assert isinstance(called, Called)
    assert noticed == Noticed(
        id=R,
        code="tool_call_mismatch",
        message=f"call {called.call_id}: there is no tool 'then'",
    )


def test_a_call_that_breaks_off_is_passed_on_as_far_as_it_came() -> None:
    turn = spoken()
    turn.take(Gain('<tool_call>{"name": "now", "arguments": {"a', (1,)))
    called, noticed = turn.flush()
    assert isinstance(called, Called)
    assert called.arguments == '{"a'
    assert isinstance(noticed, Noticed)


def test_held_text_comes_at_the_end() -> None:
    turn = spoken()
    assert turn.take(Gain("a <tool", (1,))) == [Piece(id=R, text="a", tokens=(1,))]
    assert turn.flush() == [Piece(id=R, text=" <tool")]


SAYING = (b"<think>", b"hm", b"</think>", b"a ", b"b<", b"tool_call>", b'{"name": "now"}', b"")


def said_of(*tokens: int, parsing: bool = True) -> list[Item]:
    """What is said where log-probabilities are asked for, one token after the other."""
    attribution = Attribution(SAYING.__getitem__)
    qwen = Parsing(family=family_named("qwen"), is_thinking=False, tools=TOOLS)
    turn = Turn(R, qwen if parsing else None, attribution)
    transcript = Transcript(SAYING.__getitem__, Stops())
    items: list[Item] = []
    for token in tokens:
        gain = transcript.push((token,))
        attribution.push(gain.ends, [LogProbs(token, -1.0)])
        items += turn.take(gain)
    return [*items, *turn.flush(), *turn.rest()]


def told(items: list[Item]) -> list[tuple[str, str, list[int]]]:
    return [
        (item.kind, item.text, [each.chosen.token for each in item.log_probs or ()])
        for item in items
        if isinstance(item, Piece) and (item.text or item.log_probs)
    ]


def test_log_probabilities_go_with_the_piece_that_shows_their_token() -> None:
    assert told(said_of(0, 1, 2, 3, 4)) == [
        ("reasoning", "hm", [1]),
        ("content", "a", [3]),
        ("content", " b", [4]),
        ("content", "<", []),
    ]


def test_markers_and_names_of_calls_have_none_to_tell() -> None:
    assert told(said_of(3, 4, 5, 6)) == [
        ("content", "a", [3]),
        ("content", " b", [4]),
        ("tool_call", "{}", []),
    ]


def test_without_a_reading_all_are_told() -> None:
    assert told(said_of(0, 3, 7, parsing=False)) == [
        ("content", "<think>", [0]),
        ("content", "a ", [3]),
        ("content", "", [7]),
    ]


TOKEN_TEXTS = [b"a", b"\xc3", b"\xa9", b"z"]
FIRST_TOKEN = TokenLogProbs(LogProb(0, b"a"))


def token_told(token: int, log_prob: float) -> TokenLogProbs:
    return TokenLogProbs(LogProb(token, TOKEN_TEXTS[token], log_prob), (LogProb(3, b"z", -0.5),))


def token_found(token: int, log_prob: float) -> LogProbs:
    return LogProbs(token, log_prob, ((3, -0.5),))


def test_the_first_token_has_no_log_probability_and_characters_come_whole() -> None:
    echo = EchoWriter((0, 1, 2), None, TOKEN_TEXTS.__getitem__)
    assert echo.push([token_found(1, -1.0)]) == EchoPart("a", (FIRST_TOKEN, token_told(1, -1.0)))
    assert echo.push([]) is None
    assert echo.push([token_found(2, -2.0)]) == EchoPart("é", (token_told(2, -2.0),))


def test_text_that_was_given_is_told_as_it_was() -> None:
    echo = EchoWriter((0, 1, 2), "given", TOKEN_TEXTS.__getitem__)
    assert echo.push([]) == EchoPart("given", (FIRST_TOKEN,))
    assert echo.push([token_found(1, -1.0), token_found(2, -2.0)]) == EchoPart(
        "", (token_told(1, -1.0), token_told(2, -2.0))
    )


# ---- content that its grammar does not hold to all of its schema


@pytest.mark.parametrize(
    ("pieces", "finding"),
    [
        ([b"[1,", b" 2]"], None),
        ([b"[1,", b" 1]"], "`[1]` is there twice"),
        ([b"[1,", b" "], "it is not valid JSON"),
    ],
)
def test_content_is_checked_at_its_end(pieces: list[bytes], finding: str | None) -> None:
    prepared = replace(make_prepared(), schema={"uniqueItems": True})
    answer = Answer(R, prepared, pieces.__getitem__)
    answer.take(output(0))
    *_, last, end = answer.take(output(1, end=SequenceEnd("stop", stats(2))))
    assert isinstance(end, Ended)
    message = f"the answer does not match the schema: {finding}"
    notice = Noticed(id=R, code="schema_mismatch", message=message)
    assert (last == notice) == (finding is not None)


def test_content_that_is_cut_off_is_not_checked() -> None:
    prepared = replace(make_prepared(), schema={"uniqueItems": True})
    items = Answer(R, prepared, [b"[1,"].__getitem__).take(
        output(0, end=SequenceEnd("length", stats(1)))
    )
    assert not any(isinstance(item, Noticed) for item in items)
