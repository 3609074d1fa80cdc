"""Refuses sequences that can never run, with the error for their clients."""

from ....shared.errors import EngineFailed, InvalidRequest, PromptTooLong, RequestError
from ..prompt import Media
from ..sequence import NewSequence


def refusal(sequence: NewSequence, ceiling: int) -> RequestError | None:
    """Why `sequence` cannot run in a slot of `ceiling` tokens, even alone; `None` when it can."""
    prompt = sequence.prompt
    num_tokens = len(prompt)
    if num_tokens == 0:
        return InvalidRequest("the prompt has no tokens: give at least one")
    if prompt.has_media and (refused := _media_refusal(sequence)) is not None:
        return refused
    if num_tokens >= ceiling and sequence.shift is None:
        return PromptTooLong.of(num_tokens, ceiling - 1)  # one is for the answer
    if num_tokens + len(sequence.said) > ceiling and sequence.shift is None:
        return EngineFailed(
            f"the answer cannot go on here: with {num_tokens} tokens of prompt and "
            f"{len(sequence.said)} of answer it is longer than this context of {ceiling}"
        )
    return None


def _media_refusal(sequence: NewSequence) -> RequestError | None:
    """What cannot be done with media: a token's logits are wanted last, and of each before."""
    if isinstance(sequence.prompt.spans[-1], Media):
        return InvalidRequest("the prompt ends with media: give at least one token after them")
    if sequence.shift is not None:
        return InvalidRequest("a prompt with media cannot be shifted: leave out `n_discard`")
    if sequence.scores_prompt:
        return InvalidRequest("there are no log-probabilities of a prompt with media")
    return None
