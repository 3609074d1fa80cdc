"""Chunks as vLLM, Ollama, llama-server and others stream them, and the items that they become."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.upstream.protocol.answer import LEAST_LOG_PROB, UpstreamAnswer, log_probs_of
from arriero.agent.upstream.protocol.failures import UpstreamFault
from arriero.shared.inference import LogProb, Rates, RequestId, TokenLogProbs, Usage
from arriero.shared.messages import Called, CallStarted, Ended, Item, Noticed, Piece, PromptRead

ID = RequestId("r")
RATES = Rates(decode_tokens_per_second=3.0)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    usage = {"usage": more.pop("usage")} if "usage" in more else {}
    return json.dumps({"choices": [choice | more], **usage}).encode()


def usage(prompt: int, answer: int, **details: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": answer, **details}


def taken(answer: UpstreamAnswer, *chunks: bytes) -> list[Item]:
    return [item for each in chunks for item in answer.take(each)]


def whole(*chunks: bytes, **options: Any) -> list[Item]:
    answer = UpstreamAnswer(ID, **options)
    items = taken(answer, *chunks, b"[DONE]")
    assert answer.is_over
    return [*items, *answer.ended(RATES)]


def piece(text: str, kind: Any = "content", num: int = 1) -> Piece:
    return Piece(id=ID, text=text, kind=kind, tokens=(0,) * num)


def ended(reason: Any = "stop", **fields: Any) -> Ended:
    counts = {"usage": Usage(), "rates": RATES}
    return Ended(id=ID, finish_reason=reason, **(counts | fields))


def test_vllm_counts_in_every_chunk() -> None:
    first = chunk({"role": "assistant", "content": ""}, usage=usage(5, 0))
    cached = usage(5, 3, prompt_tokens_details={"cached_tokens": 4})
    items = whole(
        first,
        chunk({"content": "He"}, usage=usage(5, 2)),
        chunk({"content": "y"}, "stop", stop_reason="!", usage=usage(5, 3)),
        json.dumps({"choices": [], "usage": cached}).encode(),
    )
    counts = Usage(prompt_tokens=5, cached_tokens=4, completion_tokens=3)
    assert items == [
        PromptRead(id=ID, prompt_tokens=5, cached_tokens=0),
        piece("He", num=2),
        piece("y"),
        ended(usage=counts, stop_string="!"),
    ]


def test_sglang_counts_reasoning_beside_the_other_counts() -> None:
    items = whole(
        chunk({"role": "assistant", "content": ""}, usage=usage(5, 0, reasoning_tokens=0)),
        chunk({"reasoning_content": "hm", "tool_calls": None}, matched_stop=None),
        chunk({"content": "Hey"}, "stop", matched_stop=7),
        json.dumps({"choices": [], "usage": usage(5, 4, reasoning_tokens=3)}).encode(),
    )
    assert items[-1] == ended(usage=Usage(prompt_tokens=5, completion_tokens=4, reasoning_tokens=3))


def test_a_server_that_counts_at_the_end_only() -> None:
    items = whole(
        chunk({"role": "assistant", "content": None}),
        chunk({"content": "Hello"}),
        chunk({}, "length"),
        json.dumps({"choices": [], "usage": usage(5, 3)}).encode(),
    )
    assert items == [
        piece("Hello"),
        PromptRead(id=ID, prompt_tokens=5, cached_tokens=0),
        piece("", num=2),
        ended("length", usage=Usage(prompt_tokens=5, completion_tokens=3)),
    ]


def test_a_server_that_never_counts() -> None:
    items = whole(chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"))
    assert items[-1] == ended(usage=Usage(completion_tokens=2))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(field: str) -> None:
    items = whole(chunk({field: "hm"}), chunk({"content": "yes"}), chunk({}, "stop"))
    counts = Usage(completion_tokens=2, reasoning_tokens=1)
    assert items == [piece("hm", "reasoning"), piece("yes"), ended(usage=counts)]


def call(index: int, arguments: Any, name: str | None = None, id: str | None = None) -> bytes:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return chunk({"tool_calls": [{"index": index, "id": id, "function": function}]})


def test_calls_one_after_the_other() -> None:
    items = whole(
        call(0, "", "look", "c1"),
        call(0, '{"a"'),
        call(0, ":1}"),
        call(1, None, "go", "c2"),
        chunk({}, "tool_calls"),
    )
    assert items == [
        CallStarted(id=ID, call_id="c1", name="look"),
        piece('{"a"', "tool_call"),
        piece(":1}", "tool_call"),
        Called(id=ID, call_id="c1", name="look", arguments='{"a":1}'),
        CallStarted(id=ID, call_id="c2", name="go"),
        Called(id=ID, call_id="c2", name="go", arguments="{}"),
        ended("tool_calls", usage=Usage(completion_tokens=2)),
    ]


def test_ollama_sends_calls_whole_and_ends_with_stop() -> None:
    items = whole(call(0, {"a": 1}, "look"), chunk({}, "stop"))
    assert items[0] == CallStarted(id=ID, call_id="call_r_0", name="look")
    assert items[2] == Called(id=ID, call_id="call_r_0", name="look", arguments='{"a":1}')
    assert isinstance(items[-1], Ended)
    assert items[-1].finish_reason == "tool_calls"


def test_one_call_is_held_to_where_a_server_sends_more() -> None:
    answer = UpstreamAnswer(ID, one_call=True)
    items = taken(answer, call(0, "{}", "look", "c1"), call(1, "{}", "go", "c2"))
    assert answer.is_over
    assert [type(each) for each in items] == [CallStarted, Piece, Called]
    assert answer.ended(RATES)[-1].finish_reason == "tool_calls"  # type: ignore[union-attr]


def test_completions() -> None:
    text = json.dumps({"choices": [{"text": "a", "finish_reason": None, "logprobs": None}]})
    end = json.dumps({"choices": [{"text": "", "finish_reason": "stop"}]})
    assert whole(text.encode(), end.encode())[0] == piece("a")


def test_log_probs_count_the_tokens_of_a_chunk() -> None:
    entries = [{"token": each, "logprob": -1.0, "bytes": None} for each in "ab"]
    [first, *_] = whole(chunk({"content": "ab"}, logprobs={"content": entries}), chunk({}, "stop"))
    assert isinstance(first, Piece)
    assert (len(first.tokens), len(first.log_probs or ())) == (2, 2)


def test_a_content_filter_is_told() -> None:
    items = whole(chunk({"content": "a"}), chunk({}, "content_filter"))
    assert isinstance(items[1], Noticed)
    assert items[-1] == ended(usage=Usage(completion_tokens=1))


def test_a_stream_may_end_without_done() -> None:
    answer = UpstreamAnswer(ID)
    taken(answer, chunk({"content": "a"}), chunk({}, "stop"))
    assert not answer.is_over  # counts may follow
    answer.closed()
    assert answer.is_over


def test_it_is_cancelled_with_what_came() -> None:
    answer = UpstreamAnswer(ID)
    taken(answer, chunk({"content": "a"}))
    assert answer.cancelled(RATES) == ended("cancelled", usage=Usage(completion_tokens=1))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "not JSON"),
        (b'"a"', "shape"),
        (b'{"choices": [1]}', "shape"),
        (b'{"choices": [{"delta": {"content": 5}}]}', "shape"),
        (b'{"error": {"message": "out of memory"}}', "out of memory"),
        (chunk({}, "abort"), "gave up"),
        (call(0, "{}"), "call that had ended"),
        (b"[DONE]", "without a reason"),
    ],
)
def test_what_does_not_keep_to_the_api(data: bytes, why: str) -> None:
    with pytest.raises(UpstreamFault, match=why):
        UpstreamAnswer(ID).take(data)


def test_an_answer_that_is_cut_off() -> None:
    answer = UpstreamAnswer(ID)
    taken(answer, chunk({"content": "a"}))
    with pytest.raises(UpstreamFault, match="in the middle of the answer"):
        answer.closed()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "tool_calls", "function", "name"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["choices", "usage", "error"]), json_values))
def test_any_json_is_taken_or_told_as_a_fault(told: dict[str, Any]) -> None:
    with suppress(UpstreamFault):
        UpstreamAnswer(ID).take(json.dumps(told).encode())


A, B = LogProb(0, b"a", -0.5), LogProb(0, b"b", -1.0)


def test_those_of_chats() -> None:
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -1.0}]
    told = {"content": [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": top}]}
    assert list(log_probs_of(told)) == [TokenLogProbs(A, (A, B))]


def test_those_of_completions() -> None:
    told = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.0}]}
    assert list(log_probs_of(told)) == [TokenLogProbs(A, (A, B))]
    bare = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": None}
    assert list(log_probs_of(bare)) == [TokenLogProbs(LogProb(0, b"a", None))]


def test_parts_of_characters_and_ids_where_a_server_tells_them() -> None:
    entry = {"id": 7, "token": "\ufffd", "logprob": -0.5, "bytes": [0xE2]}
    assert list(log_probs_of({"content": [entry]})) == [TokenLogProbs(LogProb(7, b"\xe2", -0.5))]


def test_numbers_are_bounded() -> None:
    entries = [{"token": "a", "logprob": value} for value in (-1e30, 1e-9)]
    found = [each.chosen.log_prob for each in log_probs_of({"content": entries})]
    assert found == [LEAST_LOG_PROB, 0.0]


def test_none_at_all() -> None:
    assert list(log_probs_of(None)) == []
    assert list(log_probs_of({"content": None})) == []


@pytest.mark.parametrize("told", [{"content": [{}]}, {"tokens": ["a"]}, {"content": ["a"]}])
def test_another_shape_is_an_error_that_is_told_as_such(told: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, IndexError, AttributeError)):
        list(log_probs_of(told))
