"""Frames of earlier protocol versions, recorded from the daemons of their time.

`protocol_7/session.jsonl` is what a balancer and two agents (one pinned, one assigned) said to each
other through a proxy; a `mark` says what happens next. `others.jsonl` has a frame of each kind that
this session did not need. The schemas are what that version accepted: it refuses unknown fields.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent / "protocol_7"

Side = Literal["agent", "balancer"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One text frame. `link` numbers the connections; `during` is the mark before it."""

    side: Side
    text: str
    link: int
    during: str

    @property
    def message(self) -> Any:
        return json.loads(self.text)

    @property
    def type(self) -> str:
        kind: str = self.message["type"]
        return kind


@cache
def session() -> tuple[Frame, ...]:
    """The recorded session, in order."""
    return _frames("session.jsonl")


@cache
def all_frames() -> tuple[Frame, ...]:
    """The session, and a frame of each kind that it has not."""
    return session() + _frames("others.jsonl")


@cache
def schema(side: Side) -> Draft202012Validator:
    """What a peer of version 7 takes from `side`."""
    text = (FOLDER / f"from_{side}.schema.json").read_text()
    return Draft202012Validator(json.loads(text))


def kinds(side: Side) -> set[str]:
    """The types of messages that version 7 had."""
    mapping: dict[str, str] = schema(side).schema["discriminator"]["mapping"]  # type: ignore[index]
    return set(mapping)


def _frames(name: str) -> tuple[Frame, ...]:
    frames, mark = [], "beginning"
    for line in map(json.loads, (FOLDER / name).read_text().splitlines()):
        mark = line.get("mark", mark)
        if "text" in line:
            frames.append(Frame(line["from"], line["text"], line.get("link", 0), mark))
    return tuple(frames)
