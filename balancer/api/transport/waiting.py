"""Signs of life on streams whose request waits or whose prompt is read, and when they begin.

The first word of it begins the response: an error that comes later is an event, and no HTTP status
any more. So it comes late, but early enough for proxies that cut silent connections. A client that
wants it earlier says so with `Prefer: wait=SECONDS` (RFC 7240).
"""

from collections.abc import Iterable

from typing_extensions import TypedDict

from ....shared.inference import Count, Reading, Waiting

EVENTS_AFTER = 0.5
"""Seconds after which clients are sent their place where no status is at stake: that of a batch is
200, and a WebSocket has none."""


def events_after(is_streamed: bool) -> float | None:
    """After how many seconds a client is sent its place; `None` if its answer is whole."""
    return EVENTS_AFTER if is_streamed else None


def headers_after(
    is_streamed: bool, early_headers: float, preferences: Iterable[str]
) -> float | None:
    """After how many seconds of waiting a stream begins; `preferences` are its `Prefer` headers.

    It may ask for an earlier beginning than `early_headers` seconds, and for none that is later.
    """
    if not is_streamed:
        return None
    return min([early_headers, *_preferred(preferences)])


def _preferred(preferences: Iterable[str]) -> Iterable[float]:
    """The seconds of each `wait`; what is no whole number is no preference that is known."""
    for preference in ",".join(preferences).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        seconds = value.strip().strip('"')
        if name.strip().lower() == "wait" and seconds.isascii() and seconds.isdigit():
            yield float(seconds[:9])


class PromptProgress(TypedDict):
    """llama-server's: tokens of the prompt, and for how many milliseconds it has been read."""

    total: Count
    cache: Count
    processed: Count
    time_ms: Count


def prompt_progress(reading: Reading) -> PromptProgress:
    """The progress of reading a prompt, in llama-server's form."""
    return {
        "total": reading.num_tokens,
        "cache": reading.num_cached,
        "processed": reading.num_read,
        "time_ms": round(reading.seconds * 1000),
    }


def comment(waiting: Waiting | Reading) -> bytes:
    """A comment in a stream of server-sent events: `: waiting position=3 for=slot`."""
    if isinstance(waiting, Reading):
        return f": reading {waiting.num_read} of {waiting.num_tokens} tokens\n\n".encode()
    left = "" if waiting.seconds_left is None else f" seconds_left={waiting.seconds_left:g}"
    why = "" if waiting.reason is None else f" reason={' '.join(waiting.reason.split())}"
    return f": waiting position={waiting.position} for={waiting.what}{left}{why}\n\n".encode()
