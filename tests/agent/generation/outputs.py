"""Requests, what preparation makes of them, and what the engine gives, to test with."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arriero.agent.chat.output.transcript import Stops
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.cache_folder import CacheFolder
from arriero.agent.engine.prompt_store.prompt_store import PromptStore
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity, Origin
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import (
    ContextShift,
    NewSequence,
    SequenceEnd,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.generation.answers.prepared import Echo, Parsing, Prepared
from arriero.agent.generation.answers.resumption import Resumed
from arriero.agent.sequence_id import SequenceId
from arriero.shared.inference import GenerateRequest, Notice, Rates, RequestId, Usage
from arriero.shared.messages import Ended, Item, Piece, PromptRead
from tests.agent.stored import whole

R, S = RequestId("r"), RequestId("s")
ONE, TWO = SequenceId(1), SequenceId(2)


def make_prepared(
    *,
    stop: Stops | None = None,
    notices: tuple[Notice, ...] = (),
    parsing: Parsing | None = None,
    echo: Echo | None = None,
    **sequence: Any,
) -> Prepared:
    """What preparation made; all further fields are the sequence's."""
    plain = {"id": ONE, "prompt": Prompt((1, 2)), "max_tokens": None, "sampling": Sampling(seed=1)}
    return Prepared(
        sequence=NewSequence(**(plain | {"scores_prompt": echo is not None} | sequence)),
        stop=Stops() if stop is None else stop,
        notices=notices,
        parsing=parsing,
        echo=echo,
    )


def other(prepared: Prepared, **sequence: Any) -> Prepared:
    """`prepared` with other fields of its sequence."""
    return replace(prepared, sequence=replace(prepared.sequence, **sequence))


def said_and_forced(resumed: Resumed) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """After which tokens the engine goes on, and with which."""
    return resumed.prepared.sequence.said, resumed.prepared.sequence.forced


REQUEST = GenerateRequest(prompt="x", priority=3, prefill_only=True)
SAVING = replace(REQUEST, cache_key="k", save_cache=True)
PREPARED = make_prepared(
    prompt=Prompt((1, 2, 3)),
    max_tokens=9,
    priority=3,
    stop=Stops(("!",)),
    shift=ContextShift(4, 5),
    prefill_only=True,
)
SAVED = whole((1, 2, 3), b"state")
STATS = SequenceStats(
    prompt_tokens=3,
    cached_tokens=0,
    completion_tokens=1,
    prefill_tokens=3,
    prefill_seconds=1.0,
    decode_seconds=None,
)
USAGE = Usage(prompt_tokens=3, completion_tokens=1)
ENDED = Ended(id=R, finish_reason="stop", usage=USAGE, rates=Rates(prefill_tokens_per_second=3.0))
"""How the request `r` ends with `STATS`, after one token."""


def gained(text: str, id: SequenceId = ONE, *, end: SequenceEnd | None = None) -> SequenceOutput:
    return SequenceOutput(id, tuple(text.encode()), end)


def piece(name: str, text: str) -> Piece:
    return Piece(id=RequestId(name), text=text, tokens=tuple(text.encode()))


def prompt_read(name: str) -> PromptRead:
    """What is told of the prompt of `PREPARED` with `STATS`."""
    return PromptRead(id=RequestId(name), prompt_tokens=3, cached_tokens=0)


def a_byte(token: int) -> bytes:
    return bytes([token])


def a_store(folder: Path, store_type: type[PromptStore] = PromptStore) -> PromptStore:
    identity = ModelIdentity(architecture="none", parameters=0, size_bytes=0, digest="d")
    origin = Origin(model=identity, engine="e", cache="c")
    return store_type(CacheFolder(folder, limit_bytes=10_000), origin=origin)


@dataclass(eq=False)
class Heard:
    """A listener that keeps what it hears."""

    items: list[Item] = field(default_factory=list)
    released: list[SequenceId] = field(default_factory=list)
    calls: int = 0

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...]) -> None:
        self.calls += 1
        self.items += items
        self.released += released
