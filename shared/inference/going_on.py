"""Which requests another server can go on with, given the text of the answer so far."""

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
        return not last.images
    return request.add_generation_prompt and last.role != "assistant"
