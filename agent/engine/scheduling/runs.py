"""What a step computes of one sequence: its next token, or a chunk of its prompt."""

from dataclasses import replace

from ..step import Run
from .progress import Progress


def next_run(slot: int, one: Progress, draft: tuple[int, ...]) -> Run:
    """The next token of one that generates, and what is guessed to follow it."""
    last = one.num_computed
    return Run(one.id, slot, last, (*one.next_tokens(1), *draft), True, len(draft))


def chunk_run(slot: int, one: Progress, count: int) -> Run:
    """The next `count` positions of one that reads its prompt, or a part of a picture."""
    if (media := one.history.media_part(one.num_computed, count)) is not None:
        return Run(one.id, slot, one.num_computed, (), False, media=media)
    samples = count == one.num_pending and not one.prefill_only
    run = Run(one.id, slot, one.num_computed, one.next_tokens(count), samples)
    if not one.is_scoring or not (scored := one.to_score(count)):
        return run
    tokens = one.history.token_ids(scored.start, scored.stop)
    return replace(run, scored=tokens, first_scored=scored.start - 1 - one.num_computed)
