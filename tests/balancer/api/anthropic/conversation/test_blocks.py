"""Which messages and blocks are taken."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from arriero.balancer.api.anthropic.conversation.blocks import (
    AssistantMessage,
    Message,
    SystemMessage,
    as_blocks,
    blocks_of,
)
from arriero.balancer.api.anthropic.conversation.documents import Text

_message: TypeAdapter[Message] = TypeAdapter(Message)


def message(role: str, content: Any, **more: Any) -> Message:
    return _message.validate_json(to_json({"role": role, "content": content, **more}))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_go_by_two_names(role: str) -> None:
    said = message(role, "be kind", clear_at="never")
    assert isinstance(said, SystemMessage)
    assert blocks_of(said) == (Text(text="be kind"),)


@pytest.mark.parametrize(
    ("role", "block"),
    [
        ("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        ("assistant", {"type": "tool_result", "tool_use_id": "t"}),
        ("system", {"type": "thinking", "thinking": "hm"}),
        ("assistant", {"type": "tool_removal"}),
    ],
)
def test_who_may_say_what(role: str, block: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        message(role, [block])


def test_a_text_is_a_block() -> None:
    said = AssistantMessage(role="assistant", content="hello")
    assert as_blocks(said) == (Text(text="hello"),)
    assert as_blocks(AssistantMessage(role="assistant", content=as_blocks(said))) == as_blocks(said)
