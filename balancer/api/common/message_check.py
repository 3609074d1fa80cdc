"""Checks the messages of a conversation before a request is accepted.

A template would accept an empty message, or a tool result without a call, and the model would
answer a question that nobody asked.
"""

from collections.abc import Sequence

from ....shared.errors import InvalidRequest
from ....shared.inference import ChatMessage
from .field_names import SAME_NAMES, FieldNames


def check_messages(messages: Sequence[ChatMessage], names: FieldNames = SAME_NAMES) -> None:
    """Refuse an empty message, or a tool result without the id of its call.

    Raises `InvalidRequest`.

    `messages` come from a neutral request; `names` translates field names to the client's.
    """
    for place, message in enumerate(messages):
        if (problem := _problem(message)) is None:
            continue
        member, rule = problem
        field = f"messages[{place}].{member}"
        raise names.renamed(InvalidRequest(f"`{field}` {rule}", field=field))


def _problem(message: ChatMessage) -> tuple[str, str] | None:
    """Return the wrong member of `message` and what is wrong with it; `None` if nothing is.

    An assistant's message without text is correct: it may have only calls, or was cut off during
    reasoning. The result of a function may be empty.
    """
    if message.role == "tool" and message.tool_call_id is None:
        return "tool_call_id", "is missing: give the id of the call that this message answers"
    if message.role in ("assistant", "tool"):
        return None
    if message.content is None:
        return "content", "is missing: give a text, or a list of parts such as texts and pictures"
    if message.content == ():
        return "content", "must have at least one entry, not []"
    return None
