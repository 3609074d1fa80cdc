"""The segments of an answer's text, in order.

Invariant: the `raw` of all segments of an answer, joined, is its text, character by character.
"""

from dataclasses import dataclass
from typing import Literal

from ....shared.inference import TokenKind

SegmentKind = TokenKind | Literal["markup"]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Text of one kind. Markup (markers and the white space around them) has an empty `text`.

    For the kind `tool_call`, `text` is JSON: a part of the arguments of the latest call. It can
    differ from `raw`: some families write arguments as tags. `is_reasoning` also marks markup that
    belongs to reasoning.
    """

    kind: SegmentKind
    text: str
    raw: str
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The beginning of a call whose name is known; `id` is set only if the model writes one."""

    name: str
    id: str | None
    raw: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The end of the latest call, even if its arguments are incomplete."""

    raw: str


Segment = TextSegment | CallBegan | CallEnded
