"""Progress on streams while a request waits or its prompt is read."""

from typing_extensions import TypedDict

from ....shared.inference import Count, Reading, Waiting

EVENTS_AFTER = 0.5
"""Seconds after which clients are sent their place if no HTTP status depends on it.

The status of a batch is always 200, and messages of a WebSocket have none.
"""


def events_after(is_streamed: bool) -> float | None:
    """Return the seconds after which a client is sent its place in the queue.

    Returns `None` if the answer is whole.
    """
    return EVENTS_AFTER if is_streamed else None


class PromptProgress(TypedDict):
    """llama-server's progress: tokens of the prompt, and milliseconds since reading began."""

    total: Count
    cache: Count
    processed: Count
    time_ms: Count


def prompt_progress(reading: Reading) -> PromptProgress:
    """Return the progress of reading a prompt in llama-server's form."""
    return {
        "total": reading.num_tokens,
        "cache": reading.num_cached,
        "processed": reading.num_read,
        "time_ms": round(reading.seconds * 1000),
    }


def comment(waiting: Waiting | Reading) -> bytes:
    """Return a comment in a stream of server-sent events: `: waiting position=3 for=slot`."""
    if isinstance(waiting, Reading):
        return f": reading {waiting.num_read} of {waiting.num_tokens} tokens\n\n".encode()
    left = "" if waiting.seconds_left is None else f" seconds_left={waiting.seconds_left:g}"
    why = "" if waiting.reason is None else f" reason={' '.join(waiting.reason.split())}"
    return f": waiting position={waiting.position} for={waiting.what}{left}{why}\n\n".encode()
