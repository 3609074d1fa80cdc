"""Checks the messages of a conversation, before a request is accepted.

For a template, a message that says nothing is an empty one, and a result of no call is the result
of any: the model would answer something that nobody asked.
"""

from collections.abc import Sequence

from ....shared.errors import InvalidRequest
from ....shared.inference import ChatMessage
from .field_names import SAME_NAMES, FieldNames


def check_messages(messages: Sequence[ChatMessage], names: FieldNames = SAME_NAMES) -> None:
    """Raises `InvalidRequest` for a message that says nothing, or a result of no call.

    `messages` are those of a neutral request, which `names` has the client's words for.
    """
    for place, message in enumerate(messages):
        if (problem := _problem(message)) is None:
            continue
        member, rule = problem
        field = f"messages[{place}].{member}"
        raise names.renamed(InvalidRequest(f"`{field}` {rule}", field=field))


def _problem(message: ChatMessage) -> tuple[str, str] | None:
    """The member of `message` that is wrong, and what is wrong with it.

    An answer without text is none that is wrong: it only calls, or it was cut while the model
    reasoned. A function may have no value.
    """
    if message.role == "tool" and message.tool_call_id is None:
        return "tool_call_id", "is missing: which call it is the result of"
    if message.role in ("assistant", "tool"):
        return None
    if message.content is None:
        return "content", "is missing: a text, or a list of parts such as text and pictures"
    if message.content == ():
        return "content", "must have at least one entry, not []"
    return None
