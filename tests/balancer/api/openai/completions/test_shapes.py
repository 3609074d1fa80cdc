import pytest

from arriero.balancer.api.openai.completions.shapes import Chat, Completion, Shape
from arriero.shared.inference import TokenKind, ToolCallStarted
from tests.balancer.api.fake_runtime import done


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
def test_where_a_text_stands(shape: Shape, kind: TokenKind, around: tuple[bytes, bytes]) -> None:
    assert shape.text_frame(kind, 2) == around


def test_what_comes_before_the_text() -> None:
    assert Chat().opening(0) == {"delta": {"role": "assistant", "content": ""}}
    assert Completion().opening(0) is None
    assert Completion(echoes=["a", "b"]).opening(1) == {"text": "b"}
