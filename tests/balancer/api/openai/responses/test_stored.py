"""What is stored of a response."""

from typing import Any

from arriero.balancer.api.openai.responses.items import InputMessage, OutputText, Reasoning
from arriero.balancer.api.openai.responses.stored import stored


def answer(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"resp_{text}",
        "output": [
            {
                "id": f"msg_{text}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        ],
    }


def test_what_is_not_shown_counts_too() -> None:
    part = OutputText(text="", annotations=("x" * 1000,), logprobs=("y" * 1000,))
    hidden = (
        Reasoning(encrypted_content="z" * 1000),
        InputMessage(role="assistant", content=(part,), phase="p" * 1000),
    )
    plain = (Reasoning(), InputMessage(role="assistant", content=""))
    more, less = (stored(answer("a"), items, None).num_bytes for items in (hidden, plain))
    assert more > less + 4000


def test_an_entry_holds_the_conversation_up_to_it() -> None:
    first = stored(answer("one"), (InputMessage(role="user", content="a"),), None)
    second = stored(answer("two"), (InputMessage(role="user", content="b"),), first)
    texts = [item.text for item in second.history if isinstance(item, InputMessage)]
    assert texts == ["a", "one", "b", "two"]
    assert second.input == (InputMessage(role="user", content="b"),)
    assert second.num_bytes > first.num_bytes > len("aone")


def test_log_probabilities_are_in_the_response_and_not_in_what_goes_on_from_it() -> None:
    """An answer of 5,000 tokens with 20 alternatives each took 64 MB a second time."""
    response, top = answer("one"), [{"token": "x", "logprob": -1.0, "bytes": [1]}] * 20
    response["output"][0]["content"][0]["logprobs"] = [
        {"token": "x", "logprob": -1.0, "bytes": [1], "top_logprobs": top}
    ] * 1000
    entry = stored(response, (), None)
    assert entry.response.count(b"top_logprobs") == 1000
    assert entry.num_bytes < len(entry.response) + 2000
