"""What an answer's text is made of, in the order in which it came.

Invariant: the `raw` of all segments of an answer, joined, is its text, character by character.
"""

from dataclasses import dataclass
from typing import Literal

from ....shared.inference import TokenKind

SegmentKind = TokenKind | Literal["markup"]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Some text of one kind; of markup (markers and the white space around them) nothing is said.

    `text` of the kind `tool_call` is JSON, a part of the arguments of the call that began last. It
    is not always what the model wrote: some families write arguments as tags. Markup may be
    reasoning's.
    """

    kind: SegmentKind
    text: str
    raw: str
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call whose name is known; `id` only where the model writes one."""

    name: str
    id: str | None
    raw: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The arguments of the call that began last are as whole as they will be."""

    raw: str


Segment = TextSegment | CallBegan | CallEnded
