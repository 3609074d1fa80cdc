"""A sequence: one prompt and the tokens that follow it, as the engine sees them.

Text, APIs and balancers are unknown here: a sequence goes in as a `Prompt` and comes out as token
ids, step by step, with exactly one `SequenceEnd`.
"""

from dataclasses import dataclass, field
from typing import Literal

from ...shared.errors import RequestError
from ...shared.inference import Notice
from ..sequence_id import SequenceId as SequenceId
from .grammar.constraint import Constraint
from .prompt import Prompt
from .prompt_store.blocks import OnDisk
from .prompt_store.stored_prompt import StoredPrompt
from .sampling.log_probs import LogProbs
from .sampling.sampling import Sampling


@dataclass(frozen=True, slots=True)
class ContextShift:
    """At the context ceiling, the `num_discarded` tokens after the first `num_kept` are removed."""

    num_kept: int
    num_discarded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """What the engine is asked to run.

    `prompt` has at least one position and, with `max_tokens` or without, never more than the
    slot's context ceiling less one, unless there is a `shift`. `max_tokens` of `None` goes on to
    the ceiling, or with a `shift` until an end token. `prefill_only` computes the prompt and ends
    with `stop`. What a `stored` prompt and this one have in common is not computed again; with
    `save_as` a successful end carries the computed state; not available with a `shift`. With
    `scores_prompt` the prompt's tokens get log-probabilities like the answer's, so all of them are
    computed; not available with a `shift` either.

    `said` was generated before, by another engine: the sequence goes on after it, as one does that
    was preempted. The next tokens are those of `forced`, whatever is likely: only their
    log-probabilities are needed.

    `marks` are positions of the prompt, which grow, and the names that balancers have for what is
    before them. At `borders`, which grow too, messages of the prompt begin. What is `on_disk` of
    the prompt is read where the cache has less of it.
    """

    id: SequenceId
    prompt: Prompt
    max_tokens: int | None
    sampling: Sampling
    priority: int = 0
    shift: ContextShift | None = None
    prefill_only: bool = False
    stored: StoredPrompt | None = None
    save_as: str | None = None
    constraint: Constraint | None = None
    scores_prompt: bool = False
    said: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    borders: tuple[int, ...] = ()
    on_disk: OnDisk | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStats:
    """Counts, and times in seconds by the scheduler's clock (`None`: there was no such step).

    `prefill_tokens` of the prompt, and of what was said before, were computed in steps of prefill
    alone, in `prefill_seconds`; where streams generated besides, it is not known what took
    how long. `completion_tokens` were generated here.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prefill_tokens: int
    prefill_seconds: float | None
    decode_seconds: float | None


@dataclass(frozen=True, slots=True)
class SequenceEnd:
    """Why a sequence ended: `stop` (end-of-generation token, or only prefill), `length`, an error.

    `saved` is what it asked to keep with `save_as`.
    """

    reason: Literal["stop", "length"] | RequestError
    stats: SequenceStats
    saved: StoredPrompt | None = None


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one sequence gained in one step: `tokens` (no end-of-generation token), `end`, or both.

    With drafts a step may give several tokens. A `length` end comes with the last one, `stop` with
    those that the step gave before it, errors alone. `stats` are those so far, for an answer
    that ends before the sequence does; an `end` has its own. `notices` are for the client, before
    anything else of this output. `log_probs` are of the tokens, one each, where they are asked for;
    of the token that ended the answer, too. `prompt_log_probs` are of the prompt's next tokens,
    from its second one on, and all of them come before the first of the answer's or with it.
    Without a gain, `num_read` says how many tokens of the sequence are computed so far.
    """

    id: SequenceId
    tokens: tuple[int, ...] = ()
    end: SequenceEnd | None = None
    stats: SequenceStats | None = field(default=None, compare=False)
    notices: tuple[Notice, ...] = ()
    log_probs: tuple[LogProbs, ...] = ()
    prompt_log_probs: tuple[LogProbs, ...] = ()
    num_read: int | None = None
