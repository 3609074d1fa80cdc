"""Refuses sequences that can never run, with the error for their clients."""

from ....shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError
from ..sequence import NewSequence


def refusal(sequence: NewSequence, ceiling: int) -> RequestError | None:
    """Why `sequence` cannot run in a slot of `ceiling` tokens, even alone; `None` when it can."""
    prompt = sequence.prompt
    if prompt.has_media or prompt.adapter is not None:
        return InvalidRequest("the engine computes text prompts only: no media and no adapters")
    num_tokens = len(prompt)
    if num_tokens == 0:
        return InvalidRequest("the prompt has no tokens: give at least one")
    if num_tokens >= ceiling and sequence.shift is None:
        return PromptTooLong.of(num_tokens, ceiling - 1)  # one is for the answer
    if num_tokens + len(sequence.said) > ceiling and sequence.shift is None:
        return EngineFailed(
            f"the answer cannot go on here: with {num_tokens} tokens of prompt and "
            f"{len(sequence.said)} of answer it is longer than this context of {ceiling}"
        )
    return None
