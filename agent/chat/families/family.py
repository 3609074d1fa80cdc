"""A family of models: by which markers it tells reasoning and tool calls from content."""

from dataclasses import dataclass
from typing import Literal

from .notations import Notation

FamilyName = Literal[
    "qwen",
    "glm",
    "llama",
    "mistral",
    "deepseek",
    "kimi",
    "gemma",
    "gpt-oss",
    "granite",
    "phi",
    "command-r",
    "minimax",
    "minimax-m1",
    "minimax-m3",
    "dsml",
    "kimi-k3",
    "seed",
    "nemotron",
    "lfm",
    "llama4",
    "apertus",
    "apriel",
    "hunyuan",
    "solar",
    "gigachat",
    "minicpm",
    "functionary",
    "functionary-v3.2",
    "exaone",
    "plain",
]

ChatFamily = Literal["auto", FamilyName]
"""A family's name, or `auto`: the one that the chat template shows."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How a family writes calls: after one of `openings`, in the first of `notations` that fits.

    `closings` may follow; `wrappers` may stand around several calls; `inner` markers are within.
    """

    openings: tuple[str, ...]
    notations: tuple[Notation, ...]
    closings: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers around reasoning."""

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's answers are told apart.

    `wrappers` stand around content and say nothing, and so do `openers`, at its beginning. An
    answer may begin with a call in one of the notations `bare`, without a marker. `inner` are
    control tokens that markers consist of. With `has_channels` the answer is a row of messages with
    headers.
    """

    name: FamilyName
    reasoning: ReasoningMarkers | None = None
    calls: Calls | None = None
    wrappers: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    bare: tuple[Notation, ...] = ()
    inner: tuple[str, ...] = ()
    has_channels: bool = False

    def markers(self, *, has_tools: bool) -> tuple[str, ...]:
        """What has to show in the text for the answer to be told apart."""
        found = [*self.wrappers, *self.inner]
        if self.reasoning:
            found += [self.reasoning.opening, self.reasoning.closing]
        if self.calls and has_tools:
            calls = self.calls
            found += [*calls.openings, *calls.closings, *calls.wrappers, *calls.inner]
        return tuple(dict.fromkeys(found))
