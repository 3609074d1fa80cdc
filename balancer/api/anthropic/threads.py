"""Threads: conversations that a client continues by the id of their last answer.

A stored thread is the whole conversation from its last summary on, without context edits.
Continuing a thread does not change it, so an answer can be continued several times.
"""

from dataclasses import dataclass, replace

from pydantic import TypeAdapter
from pydantic_core import to_json

from ....shared.errors import ThreadNotFound
from ....shared.strict import LAZY
from ...fleet.footprint import footprints
from .conversation.blocks import AssistantMessage, as_blocks
from .conversation.compaction import from_summary
from .events import Block
from .requests import MessagesInput

_answer = TypeAdapter(AssistantMessage)


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation up to and including an answer."""

    __pydantic_config__ = LAZY

    conversation: MessagesInput
    body_bytes: int
    """The bytes of all bodies and answers in the conversation."""
    memory: int = 0
    """The estimated bytes of memory."""

    @property
    def num_bytes(self) -> int:
        """The bytes that the thread counts for in its store."""
        return max(self.body_bytes, self.memory)


def stored_thread(conversation: MessagesInput, answer: list[Block], num_bytes: int) -> Thread:
    """Return the thread of `conversation`, whose requests had `num_bytes`, with its answer."""
    told = [{name: each for name, each in block.items() if name != "citations"} for block in answer]
    content = to_json({"role": "assistant", "content": told})
    said = _answer.validate_json(content)
    messages = conversation.messages
    if isinstance(begun := messages[-1], AssistantMessage):
        # The answer went on from it.
        said = AssistantMessage(role="assistant", content=as_blocks(begun) + as_blocks(said))
        messages = messages[:-1]
    whole = from_summary((*messages, said))
    memory = footprints((conversation.system, *conversation.tools, *whole))
    return Thread(replace(conversation, messages=whole), num_bytes + len(content), memory)


def unknown_thread(id: str) -> ThreadNotFound:
    """Return the error for a thread that is not stored, or was deleted."""
    field = "thread.previous_message_id"
    return ThreadNotFound(
        f"`{field}`: no thread is stored under {id[:100]!r}; send the whole conversation with "
        '`"thread": {"type": "create"}`',
        field=field,
    )
