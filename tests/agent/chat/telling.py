"""Runs answers through the segmenter, cut anywhere, and merges what comes into few pieces."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.families.family import Family
from arriero.agent.chat.parsing.reader import Parse, Reader
from arriero.agent.chat.parsing.segmenter import Segmenter
from arriero.agent.chat.parsing.segments import CallBegan, CallEnded, Segment, TextSegment
from arriero.agent.chat.parsing.tools import Tools

TOOLS = Tools(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer"},
                        "unit": {"type": "string", "enum": ["C", "F"]},
                    },
                    "required": ["city"],
                },
            },
        },
        {"type": "function", "function": {"name": "now"}},
    ]
)

Piece = tuple[str, str]
"""What is said: `("content", text)` and so on; a call is `("call", name)`, `("end", "")`."""


def pieces_of(segments: Iterable[Segment]) -> list[Piece]:
    """What `segments` say, neighbours of one kind merged, markup left out."""
    pieces: list[Piece] = []
    for kind, text in _pieces(segments):
        if pieces and pieces[-1][0] == kind and kind != "call":
            pieces[-1] = (kind, pieces[-1][1] + text)
        else:
            pieces.append((kind, text))
    return pieces


def _pieces(segments: Iterable[Segment]) -> Iterator[Piece]:
    for segment in segments:
        match segment:
            case TextSegment(kind, text) if kind != "markup" and text:
                yield kind, text
            case CallBegan(name):
                yield "call", name
            case CallEnded():
                yield "end", ""


def cut(text: str, places: Sequence[int]) -> list[str]:
    """`text` in pieces; `places` are taken modulo its length."""
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)]


def segments_of(
    family: Family | str,
    texts: Iterable[str],
    *,
    is_thinking: bool = False,
    tools: Tools | None = TOOLS,
) -> list[Segment]:
    """All segments of an answer that comes as `texts`."""
    if isinstance(family, str):
        family = family_named(family)
    segmenter = Segmenter(family, is_thinking=is_thinking, tools=tools)
    segments = [segment for text in texts for segment in segmenter.push(text)]
    return [*segments, *segmenter.flush()]


def told(
    family: Family | str, text: str, *, is_thinking: bool = False, tools: Tools | None = TOOLS
) -> list[Piece]:
    """What `text` says, whole and character by character, which must be the same."""
    options = {"is_thinking": is_thinking, "tools": tools}
    whole = segments_of(family, [text], **options)
    in_characters = segments_of(family, text, **options)
    for segments in (whole, in_characters):
        assert "".join(segment.raw for segment in segments) == text
    assert pieces_of(whole) == pieces_of(in_characters)
    return pieces_of(whole)


def parsed(parse: Parse[bool], reader: Reader, text: str) -> tuple[bool, list[Piece], str]:
    """Runs one parser over `text`, fed in characters: its answer, what it said, what it left."""
    result: bool | None = None
    for character in [*text, ""]:
        if character:
            reader.feed(character)
        else:
            reader.is_over = True
        try:
            if result is None:
                next(parse)
        except StopIteration as stop:
            result = bool(stop.value)
    assert result is not None
    segments = reader.fetch()
    left = text[sum(len(segment.raw) for segment in segments) :]
    return result, pieces_of(segments), left
