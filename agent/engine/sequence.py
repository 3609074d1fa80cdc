"""A sequence: one prompt and the tokens that follow it, as the engine sees them.

Text, APIs and balancers are unknown here: a sequence goes in as token ids and comes out as token
ids, step by step, with exactly one `SequenceEnd`.
"""

from dataclasses import dataclass
from typing import Literal, NewType

from ...shared.errors import RequestError
from .sampling import Sampling

SequenceId = NewType("SequenceId", int)
"""Unique in one agent process; not llama.cpp's `seq_id`, which is the number of a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """What the engine is asked to run.

    `prompt` holds at least one token and, with `max_tokens` or without, never more than the
    slot's context ceiling less one. `max_tokens` of `None` goes on to the ceiling.
    """

    id: SequenceId
    prompt: tuple[int, ...]
    max_tokens: int | None
    sampling: Sampling
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStats:
    """Counts, and times in seconds by the scheduler's clock (`None`: there was no such step).

    `prefill_tokens` of the prompt were computed in steps that only read prompts, in
    `prefill_seconds`; where streams generated besides, nobody can tell what took how long.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prefill_tokens: int
    prefill_seconds: float | None
    decode_seconds: float | None


@dataclass(frozen=True, slots=True)
class SequenceEnd:
    """Why a sequence ended: `stop` (end-of-generation token), `length`, or an error."""

    reason: Literal["stop", "length"] | RequestError
    stats: SequenceStats


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one sequence gained in one step: `tokens` (no end-of-generation token), `end`, or both.

    A `length` end comes with the last token; `stop` and errors come alone. `cached_tokens` of the
    prompt were not computed, as in the end's counts, for those who do not wait for the end.
    """

    id: SequenceId
    tokens: tuple[int, ...] = ()
    end: SequenceEnd | None = None
    cached_tokens: int = 0
