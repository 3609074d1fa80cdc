"""Estimates the length of a request's prompt without rendering or tokenising it."""

from collections.abc import Mapping, Sequence

from ...shared.inference import AudioPart, ChatMessage, GenerateRequest, ImagePart, TextPart

LONG_TEXT = 64 * 1024
"""Characters above which a request counts as long; a shorter prompt takes milliseconds."""


VERY_LONG_TEXT = 2**20
"""Characters above which a request is very long; a shorter prompt takes tenths of a second."""


def is_long(request: GenerateRequest) -> bool:
    """Return whether the prompt of `request` is slow to prepare."""
    return text_length(request) > LONG_TEXT


def text_length(request: GenerateRequest) -> int:
    """Return a lower estimate of the prompt's length in characters.

    Counting stops above `VERY_LONG_TEXT`, and visits few more than `LONG_TEXT` values.
    """
    waiting: list[object] = [
        *(request.prompt, request.suffix, request.messages),
        *(request.tools, request.chat_template_kwargs),
    ]
    size = 0
    while waiting and size <= VERY_LONG_TEXT:
        value = waiting.pop()
        size += 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, TextPart):
            waiting.append(value.text)
        elif isinstance(value, ImagePart):
            size += LONG_TEXT  # decoding and scaling it takes as long
        elif isinstance(value, AudioPart):
            size += LONG_TEXT + len(value.input_audio.data) // 4  # a second is 1 kB of MP3
        elif isinstance(value, ChatMessage):
            waiting += [value.content, value.reasoning_content, value.tool_calls]
        elif isinstance(value, Mapping | Sequence):
            size += len(value)
            if size <= LONG_TEXT:
                waiting += [*value, *value.values()] if isinstance(value, Mapping) else value
    return size
