"""A sequence in the engine: one prompt and the tokens that follow it.

The engine does not know text, APIs or balancers. A sequence goes in as a `Prompt` and comes out as
token ids, step by step, with exactly one `SequenceEnd`.
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
    """At the maximum length, remove the `num_discarded` tokens after the first `num_kept`."""

    num_kept: int
    num_discarded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """A sequence that the engine is asked to run.

    `prompt` has at least one position and, unless there is a `shift`, fewer positions than the
    slot's maximum length. A `max_tokens` of `None` continues to the maximum length, or with a
    `shift` until an end token. `prefill_only` computes the prompt and ends with `stop`. The common
    prefix with a `stored` prompt is not computed again. With `scores_prompt` the prompt's tokens
    get log-probabilities like the answer's, so all tokens are computed; not available with a
    `shift`.

    Another engine generated `said` before. The sequence continues after `said`, like a preempted
    sequence. The next tokens are the `forced` ones, whatever the logits: only their
    log-probabilities are needed.

    `marks` has increasing positions of the prompt, with the keys that balancers have for the
    prefixes before them. Messages of the prompt begin at the increasing positions `borders`. The
    prefix `on_disk` is read if the cache has less of it.
    """

    id: SequenceId
    prompt: Prompt
    max_tokens: int | None
    sampling: Sampling
    priority: int = 0
    shift: ContextShift | None = None
    prefill_only: bool = False
    stored: StoredPrompt | None = None
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

    `prefill_tokens` of the prompt and of `said` were computed in steps of prefill alone, in
    `prefill_seconds`. Mixed steps do not show how long each part took. `completion_tokens` were
    generated in this engine.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prefill_tokens: int
    prefill_seconds: float | None
    decode_seconds: float | None


@dataclass(frozen=True, slots=True)
class SequenceEnd:
    """The end of a sequence: `stop`, `length`, or an error.

    `stop` means an end-of-generation token, or the end of a prompt that was only to be computed.
    """

    reason: Literal["stop", "length"] | RequestError
    stats: SequenceStats


@dataclass(slots=True)
class SequenceOutput:
    """The output of one sequence in one step: `tokens`, `end`, or both.

    An output never changes; it is not frozen for the same reason as `step.Run`.

    `tokens` has no end-of-generation token. With drafts a step may give several tokens. A `length`
    end comes with the last token. `stop` comes with the tokens that the step gave before it. An
    error comes without tokens. `notices` are for the client, before everything else in this
    output. If there is no other output, `num_read` is the number of tokens computed so far.

    An `end` has its own counts. Without an end, `stats` are the counts so far after a step that
    read, and `decode_seconds` the seconds of decode steps so far. A text may end before its
    sequence does, and then needs them.

    `log_probs` has one entry per token, if requested, also for the token that ended the answer.
    `prompt_log_probs` belong to the prompt's next tokens, from its second token on. All of them
    come before or with the answer's first token.
    """

    id: SequenceId
    tokens: tuple[int, ...] = ()
    end: SequenceEnd | None = None
    stats: SequenceStats | None = field(default=None, compare=False)
    decode_seconds: float | None = field(default=None, compare=False)
    notices: tuple[Notice, ...] = ()
    log_probs: tuple[LogProbs, ...] = ()
    prompt_log_probs: tuple[LogProbs, ...] = ()
    num_read: int | None = None
