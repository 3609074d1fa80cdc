"""Applies a request's context edits; an agent counts the tokens that they save."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from ....shared.inference import GenerateRequest
from .context_edits import AppliedEdit, Edit
from .conversation.blocks import Message

T = TypeVar("T")

Build = Callable[[tuple[Message, ...]], GenerateRequest]
Count = Callable[[GenerateRequest], Awaitable[int]]


class Run(Protocol):
    """Runs work that is slow for long conversations without blocking the event loop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


@dataclass(slots=True)
class Edited:
    """A request after its edits. `num_tokens` are those of its prompt, where they were counted."""

    messages: tuple[Message, ...]
    request: GenerateRequest
    applied: list[AppliedEdit] = field(default_factory=list)
    num_tokens: int | None = None
    original_tokens: int | None = None
    """Likewise before its edits."""


async def apply_edits(
    messages: tuple[Message, ...], edits: Iterable[Edit], *, run: Run, build: Build, count: Count
) -> Edited:
    """`messages` after `edits`. Raises what `build` and `count` raise.

    Tokens are counted only if there is something to clear: once before the first edit, and once
    for each edit.
    """
    edited = Edited(messages, await run(partial(build, messages)))
    for edit in edits:
        change = await run(partial(edit.change, edited.messages))
        if change is None:
            continue
        if edited.num_tokens is None:
            edited.num_tokens = edited.original_tokens = await count(edited.request)
        if edited.num_tokens <= edit.above:
            continue
        shorter = await run(partial(build, change.messages))
        num_tokens = await count(shorter)
        saved = max(0, edited.num_tokens - num_tokens)
        if saved < edit.least:
            continue
        edited.messages, edited.request = change.messages, shorter
        edited.num_tokens = num_tokens
        edited.applied.append(edit.told(change.num_cleared, saved))
    return edited
