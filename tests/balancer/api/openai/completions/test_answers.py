import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion as TextCompletion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion import ChoiceLogprobs
from openai.types.completion_choice import Logprobs
from pydantic import TypeAdapter

from arriero.balancer.api.common.accumulator import Accumulator
from arriero.balancer.api.openai.completions.answers import (
    AnswerShape,
    Chat,
    ChoicesAnswer,
    ChunkHead,
    Completion,
    LogProbsWriter,
    RunningUsage,
    chat_log_probs,
    error_chunk,
    usage_of,
    whole_answer,
)
from arriero.shared.errors import AgentLost
from arriero.shared.inference import (
    Begun,
    Done,
    Event,
    Failed,
    LogProb,
    Notice,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Usage,
)
from tests.balancer.api.fake_runtime import TIMINGS, done
from tests.balancer.api.pushed import pushed
from tests.balancer.api.strict_models import checked

HEAD = ChunkHead(id="x-1", created=5, model="m", service_tier="flex")


def written(writer: ChoicesAnswer, *events: tuple[int, Event], tail: bool = True) -> list[Any]:
    data = b"".join(writer.render(event, number) for number, event in events)
    if tail:
        data += writer.tail()
    assert data.endswith(b"\n\n")
    chunks = data[:-2].split(b"\n\n")
    assert all(chunk.startswith(b"data: ") for chunk in chunks)
    if tail:
        assert chunks.pop() == b"data: [DONE]"
    return [json.loads(chunk[6:]) for chunk in chunks]


def writer(
    shape: AnswerShape, *, num_choices: int = 1, include_usage: bool = False
) -> ChoicesAnswer:
    return ChoicesAnswer(shape, HEAD, num_choices=num_choices, include_usage=include_usage)


def choice(index: int, finish_reason: str | None = None, **values: Any) -> list[dict[str, Any]]:
    return [{"index": index, **values, "logprobs": None, "finish_reason": finish_reason}]


def test_chat_chunks() -> None:
    chunks = written(
        writer(Chat()),
        (0, Token("hm", "reasoning")),
        (0, Token("a")),
        (0, Notice("x", "y")),
        (0, Begun(7, 0)),
        (0, Token('"\n')),
        (0, done("length")),
    )
    assert [chunk.pop("choices") for chunk in chunks] == [
        choice(0, delta={"role": "assistant", "content": ""}),
        choice(0, delta={"reasoning_content": "hm"}),
        choice(0, delta={"content": "a"}),
        choice(0, delta={"content": '"\n'}),
        choice(0, "length", delta={}),
    ]
    head = {"id": "x-1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    assert chunks == [head | {"service_tier": "flex"}] * 5


def test_chunks_of_calls() -> None:
    chunks = written(
        writer(Chat()),
        *(
            (0, event)
            for number in range(2)
            for event in (
                ToolCallStarted(f"c{number}", "f"),
                Token('{"a"', "tool_call"),
                Token(": 1}", "tool_call"),
                ToolCall(f"c{number}", "f", '{"a": 1}'),
            )
        ),
        (0, done("tool_calls")),
    )

    def calls(index: int) -> list[list[dict[str, Any]]]:
        begin = {"id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": ""}}
        parts = [{"function": {"arguments": part}} for part in ('{"a"', ": 1}")]
        return [
            choice(0, delta={"tool_calls": [{"index": index} | each]}) for each in (begin, *parts)
        ]

    assert [chunk["choices"] for chunk in chunks] == [
        choice(0, delta={"role": "assistant", "content": ""}),
        *calls(0),
        *calls(1),
        choice(0, "tool_calls", delta={}),
    ]


@pytest.mark.parametrize(("text", "content"), [("", None), ("Look:", "Look:")])
def test_a_whole_answer_that_calls(text: str, content: str | None) -> None:
    answer = Accumulator()
    for event in (Token(text), ToolCall("c", "f", "{}"), done("tool_calls")):
        answer.add(event)
    (only,) = whole_answer(Chat(), HEAD, [answer], 1)["choices"]
    assert only["finish_reason"] == "tool_calls"
    assert only["message"] == {
        "role": "assistant",
        "content": content,
        "refusal": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }


def test_completion_chunks() -> None:
    chunks = written(writer(Completion()), (0, Token("a")), (0, done()))
    assert [chunk.pop("choices") for chunk in chunks] == [
        choice(0, text="a"),
        choice(0, "stop", text=""),
    ]
    head = {"id": "x-1", "object": "text_completion", "created": 5, "model": "m"}
    assert chunks == [head | {"service_tier": "flex"}] * 2


def test_an_answer_without_text_still_has_a_role() -> None:
    chunks = written(writer(Chat()), (0, done()))
    assert [chunk["choices"] for chunk in chunks] == [
        choice(0, delta={"role": "assistant", "content": ""}),
        choice(0, "stop", delta={}),
    ]


def test_each_choice_has_its_role_and_end() -> None:
    events = [(1, Token("b")), (0, Token("a")), (1, Token("c")), (1, done()), (0, done())]
    chunks = written(writer(Chat(), num_choices=2), *events)
    seen = [(c["choices"][0]["index"], c["choices"][0]["delta"].get("content")) for c in chunks]
    assert seen == [(1, ""), (1, "b"), (0, ""), (0, "a"), (1, "c"), (1, None), (0, None)]


def test_usage_comes_last_and_is_null_before() -> None:
    chunks = written(writer(Chat(), include_usage=True), (0, Token("a")), (0, done()))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 9
    assert chunks[-1]["id"] == "x-1"


def test_a_failure_is_the_last_chunk() -> None:
    chunk = writer(Chat()).render(Failed(AgentLost("gone")))
    assert chunk == error_chunk(AgentLost("gone"))
    assert chunk.startswith(b'data: {"error":{"message":"gone"')


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([Chat(), Completion()]))
def test_any_text_makes_one_data_line(text: str, shape: AnswerShape) -> None:
    head = ChunkHead(id="x", created=1, model=text)
    one = ChoicesAnswer(shape, head, num_choices=1, include_usage=True)
    for chunk in written(one, (0, Token(text)), (0, Token(text)), (0, done())):
        assert chunk["model"] == text
        for said in chunk["choices"]:
            content = said.get("text") or said.get("delta", {}).get("content")
            assert content in (text, "", None)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
LOG_PROB = LogProb(1, b"a", -0.5)
SAID = st.builds(
    Token,
    TEXTS,
    st.sampled_from(["content", "reasoning"]),
    log_probs=st.sampled_from([(), (TokenLogProbs(LOG_PROB, (LOG_PROB,)),)]),
).map(lambda token: [token])
CALLS = st.builds(
    lambda id, arguments: [
        ToolCallStarted(id, "f"),
        Token(arguments, "tool_call"),
        ToolCall(id, "f", arguments),
    ],
    TEXTS,
    TEXTS,
)
ENDS = st.sampled_from(["stop", "length", "tool_calls", "cancelled"]).map(done)


@given(st.lists(SAID | CALLS, max_size=4), ENDS, st.booleans())
def test_chat_is_what_the_client_knows(pieces: list[list[Event]], end: Done, logs: bool) -> None:
    events = [*(event for piece in pieces for event in piece), end]
    shape = Chat(has_log_probs=logs)
    for chunk in written(writer(shape, include_usage=True), *((0, event) for event in events)):
        checked(TypeAdapter(ChatCompletionChunk), chunk, ours={"reasoning_content"})
    whole = whole_answer(shape, HEAD, [answer(*events)], 1)
    checked(TypeAdapter(ChatCompletion), whole, ours={"reasoning_content"})


@given(st.lists(SAID | CALLS, max_size=6), ENDS, st.booleans(), st.booleans())
def test_what_is_pushed_is_what_is_rendered(
    pieces: list[list[Event]], end: Done, logs: bool, running: bool
) -> None:
    events = [*(event for piece in pieces for event in piece), end]
    pushes, renders = (
        ChoicesAnswer(
            Chat(has_log_probs=logs),
            HEAD,
            num_choices=1,
            include_usage=True,
            has_running_usage=running,
        )
        for _ in range(2)
    )
    rendered = b"".join(renders.render(event) for event in events)
    assert pushed(pushes.render, pushes.frame_of, events) == rendered


@given(st.lists(TEXTS.map(Token), max_size=4), st.sampled_from(["stop", "length"]).map(done))
def test_completions_are_what_the_client_knows(tokens: list[Event], end: Done) -> None:
    """Only the last chunk: of those before the client's model wants a reason, too."""
    events = (*tokens, end)
    *_, last = written(writer(Completion()), *((0, event) for event in events))
    whole = whole_answer(Completion(), HEAD, [answer(*events)], 1)
    for told in (last, whole):
        checked(TypeAdapter(TextCompletion), told, ours=["service_tier"])


def answer(*events: Event) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator


def test_whole_chat_answer() -> None:
    answers = [
        answer(Token("hm", "reasoning"), Token("a"), done(cached=3)),
        answer(Token("b"), done("cancelled")),
    ]
    assert whole_answer(Chat(), HEAD, answers, 2) == {
        "id": "x-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "service_tier": "flex",
        "choices": [
            *choice(
                0,
                "stop",
                message={
                    "role": "assistant",
                    "content": "a",
                    "refusal": None,
                    "reasoning_content": "hm",
                },
            ),
            *choice(1, "stop", message={"role": "assistant", "content": "b", "refusal": None}),
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 4,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_whole_completion_answer() -> None:
    whole = whole_answer(Completion(), HEAD, [answer(Token("a"), done("length"))], 1)
    assert whole["object"] == "text_completion"
    assert whole["choices"] == choice(0, "length", text="a")


def test_a_prompt_counts_once_whatever_its_choices() -> None:
    def end(prompt: int, completion: int) -> Done:
        usage = Usage(prompt_tokens=prompt, completion_tokens=completion, reasoning_tokens=1)
        return Done("stop", usage, TIMINGS, "a")

    usage = usage_of([end(10, 1), end(10, 2), end(20, 3), end(20, 4)], 2)
    assert usage["prompt_tokens"] == 30
    assert usage["completion_tokens"] == 10
    assert usage["total_tokens"] == 40
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}


# ---- log-probabilities and echoes

A = TokenLogProbs(LogProb(1, b"a", -0.5), (LogProb(2, b"b", -0.1),))
B = TokenLogProbs(LogProb(2, b"b", -1.5))


def chosen(chunks: list[Any]) -> list[Any]:
    return [chunk["choices"][0] for chunk in chunks]


def gathered(*events: Event) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator


def choices_of(shape: AnswerShape, *answers: Accumulator) -> Any:
    return whole_answer(shape, HEAD, answers, 1)["choices"]


def test_progress_that_shows_nothing_is_not_told() -> None:
    chunks = written(
        writer(Chat()), (0, Token("", "reasoning", (1,))), (0, Token("a")), (0, done())
    )
    deltas = [each["delta"] for each in chosen(chunks)]
    assert [each.get("content") for each in deltas[1:]] == ["a", None]
    assert deltas[0]["role"] == "assistant"


def test_log_probabilities_of_chats_content() -> None:
    shape = Chat(has_log_probs=True)
    events = [Token("hm", "reasoning", (1,), (B,)), Token("a", log_probs=(A,)), Token(""), done()]
    chunks = written(writer(shape), *((0, event) for event in events))
    opening, thought, content, end = (each["logprobs"] for each in chosen(chunks))
    assert (opening, thought, end) == (None, None, None)
    assert [each["token"] for each in content["content"]] == ["a"]
    (choice,) = choices_of(shape, gathered(*events))
    assert choice["logprobs"] == content


def test_log_probabilities_of_completions_stand_choice_by_choice() -> None:
    events = (
        (0, Token("a", log_probs=(A,))),
        (1, Token("b", log_probs=(B,))),
        (0, Token("b", log_probs=(B,))),
    )
    parts = written(
        writer(Completion(has_log_probs=True), num_choices=2), *events, (0, done()), (1, done())
    )
    told = [each["logprobs"] for each in chosen(parts)[:3]]
    assert [(each["tokens"], each["text_offset"]) for each in told] == [
        *((["a"], [0]), (["b"], [0]), (["b"], [1])),
    ]


@pytest.mark.parametrize("shape", [Chat(), Completion()])
def test_nobody_is_told_what_he_did_not_ask_for(shape: AnswerShape) -> None:
    told = Token("a", log_probs=(A,))
    chunks = written(writer(shape), (0, told), (0, done()))
    assert {each["logprobs"] for each in chosen(chunks)} == {None}
    (choice,) = choices_of(shape, gathered(told, done()))
    assert choice["logprobs"] is None


def test_an_echo_comes_first() -> None:
    shape = Completion(echoes=("x ", "y "))
    events = ((1, Token("a")), (0, Token("b")), (1, Token("c")), (1, done()), (0, done()))
    chunks = written(writer(shape), *events)
    assert [(each["index"], each["text"]) for each in chosen(chunks)] == [
        *((1, "y "), (1, "a"), (0, "x "), (0, "b"), (1, "c"), (1, ""), (0, "")),
    ]
    whole = choices_of(shape, gathered(Token("a"), done()), gathered(done()))
    assert [choice["text"] for choice in whole] == ["x a", "y "]


NOTHING_BEFORE = TokenLogProbs(LogProb(3, b"x"))


def test_a_prompt_that_was_told_stands_before_its_answer() -> None:
    prompt = Token("xa", "prompt", (), (NOTHING_BEFORE, A))
    answer = Token("b", log_probs=(B,))
    shape = Completion(has_log_probs=True)
    (choice,) = choices_of(shape, gathered(prompt, answer, done()))
    assert choice["text"] == "xab"
    assert choice["logprobs"] == {
        "tokens": ["x", "a", "b"],
        "token_logprobs": [None, -0.5, -1.5],
        "top_logprobs": [None, {"b": -0.1, "a": -0.5}, {"b": -1.5}],
        "text_offset": [0, 1, 2],
    }
    parts = written(
        writer(Completion(has_log_probs=True)), *((0, each) for each in (prompt, answer, done()))
    )
    assert [each["text"] for each in chosen(parts)] == ["xa", "b", ""]
    told = [each["logprobs"] for each in chosen(parts)[:2]]
    assert [each["text_offset"] for each in told] == [[0, 1], [2]]


def test_nothing_that_was_to_follow_ends_for_want_of_tokens() -> None:
    shape = Completion(generates=False)
    (choice,) = choices_of(shape, gathered(done()))
    assert (choice["text"], choice["finish_reason"]) == ("", "length")
    (last,) = chosen(written(writer(shape), (0, done())))
    assert last["finish_reason"] == "length"


@pytest.mark.parametrize("include_usage", [False, True])
def test_a_running_usage_stands_in_every_chunk(include_usage: bool) -> None:
    running = ChoicesAnswer(
        Chat(), HEAD, num_choices=1, include_usage=include_usage, has_running_usage=True
    )
    chunks = written(
        running,
        (0, Begun(7, 2)),
        (0, Token("a", tokens=(1, 2))),
        (0, Token("b", tokens=(3,))),
        (0, done("stop")),
    )
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk["choices"]]
    assert counts == [2, 2, 3, done("stop").usage.completion_tokens]
    assert chunks[1]["usage"]["prompt_tokens"] == 7
    assert (not chunks[-1]["choices"]) == include_usage
    for chunk in chunks:
        TypeAdapter(ChatCompletionChunk).validate_python(chunk)


# ---- shapes


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [("stop", "stop"), ("length", "length"), ("tool_calls", "tool_calls"), ("cancelled", "stop")],
)
def test_why_a_chat_ended(reason: str, finish_reason: str) -> None:
    assert Chat().finish_reason(done(reason)) == finish_reason


def test_why_a_completion_ended() -> None:
    assert Completion().finish_reason(done("length")) == "length"
    assert Completion().finish_reason(done("cancelled")) == "stop"
    assert Completion(generates=False).finish_reason(done("stop")) == "length"


def test_completions_have_no_calls() -> None:
    with pytest.raises(RuntimeError, match="calls f"):
        Completion().call_started(ToolCallStarted("c", "f"), 0)


@pytest.mark.parametrize(
    ("shape", "kind", "around"),
    [
        (Chat(), "content", (b'"delta":{"content":', b"}")),
        (Chat(), "reasoning", (b'"delta":{"reasoning_content":', b"}")),
        (
            Chat(),
            "tool_call",
            (b'"delta":{"tool_calls":[{"index":2,"function":{"arguments":', b"}}]}"),
        ),
        (Completion(), "prompt", (b'"text":', b"")),
    ],
)
def test_where_a_text_stands(
    shape: AnswerShape, kind: TokenKind, around: tuple[bytes, bytes]
) -> None:
    assert shape.text_frame(kind, 2) == around


def test_what_comes_before_the_text() -> None:
    assert Chat().opening(0) == {"delta": {"role": "assistant", "content": ""}}
    assert Completion().opening(0) is None
    assert Completion(echoes=["a", "b"]).opening(1) == {"text": "b"}


# ---- log-probabilities


SNOWMAN = "☃".encode()


def one(piece: bytes, log_prob: float = -1.0, *top: LogProb) -> TokenLogProbs:
    return TokenLogProbs(LogProb(1, piece, log_prob), top)


def test_chat() -> None:
    told = chat_log_probs([one(b"a", -0.5, LogProb(2, b"b", -0.1))])
    parsed = ChoiceLogprobs.model_validate(told, strict=True)
    assert parsed.content is not None
    assert parsed.content[0].token == "a"
    assert parsed.content[0].top_logprobs[0].token == "b"
    assert parsed.refusal is None
    assert told.keys() == {"content", "refusal"}


def test_a_completions_tokens_know_where_they_stand() -> None:
    subject = LogProbsWriter(offset=10)
    first = subject.render([one(b"ab"), one(SNOWMAN[:1]), one(SNOWMAN[1:])])
    assert first == {
        "tokens": ["ab", r"\xe2", r"\x98\x83"],
        "token_logprobs": [-1.0, -1.0, -1.0],
        "top_logprobs": [{"ab": -1.0}, {r"\xe2": -1.0}, {r"\x98\x83": -1.0}],
        "text_offset": [10, 12, 12],
    }
    Logprobs.model_validate(first, strict=True)
    assert subject.render([one(b"c")])["text_offset"] == [13]
    assert subject.render([])["tokens"] == []


def test_the_chosen_token_is_among_the_likeliest_of_a_completion() -> None:
    likely = LogProb(2, b"b", -0.1)
    told = LogProbsWriter().render([one(b"a", -5.0, likely), one(b"b", -0.1, likely)])
    assert told["top_logprobs"] == [{"b": -0.1, "a": -5.0}, {"b": -0.1}]


# ---- usage


def test_it_grows_with_each_choice_and_ends_with_the_counts_of_the_end() -> None:
    usage = RunningUsage(num_choices=2)
    usage.take(0, Begun(7, 3))
    usage.take(1, Begun(7, 7))
    usage.take(0, Token("hm", "reasoning", (1, 2)))
    usage.take(1, Token("", tokens=(3,)))
    assert usage.total == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    end = done("stop")
    usage.take(0, end)
    assert usage.total["completion_tokens"] == end.usage.completion_tokens + 1


def test_each_prompt_counts_once() -> None:
    usage = RunningUsage(num_choices=2)
    for number in range(4):
        usage.take(number, Begun(5, 0))
    assert usage.total["prompt_tokens"] == 10
