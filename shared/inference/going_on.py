"""Which requests another agent can go on with, given the text of the answer so far."""

from .request import GenerateRequest


def goes_on_by_text(request: GenerateRequest) -> bool:
    """Whether the rest of an answer in plain text can be asked for.

    A grammar would begin anew. A prompt of token ids, or one with a suffix, has no place for text,
    and a conversation whose end the template was asked to leave as it is has none, either.
    """
    if request.grammar is not None or request.suffix is not None:
        return False
    if request.messages is None:
        return isinstance(request.prompt, str)
    if request.tools and request.tool_choice not in (None, "auto", "none"):
        return False
    last = request.messages[-1]
    if request.continue_final_message:
        return not last.media
    return request.add_generation_prompt and last.role != "assistant"


def goes_on_anywhere(request: GenerateRequest) -> bool:
    """Whether that can be asked of an engine or a server of another kind, too.

    Log-probabilities of several tellers are no answer of one; a saved prompt is an engine's own.
    """
    is_explained = request.logprobs or request.prompt_logprobs
    return goes_on_by_text(request) and not is_explained and not request.save_cache
