"""How much of what arrived on a connection is read in one turn of the event loop.

A read of the socket brings up to 256 KiB. As HTTP headers, as chunks of one byte or as empty frames
these take tenths of a second to parse, in which nothing else runs. So aiohttp gets them in parts,
one a turn, and nothing more is read from the socket meanwhile.
"""

BYTES_AT_ONCE = 64 * 1024
LINES_AT_ONCE = 512
"""Lines of HTTP: each header is one, and each chunk of a body two."""

_NEWLINE = b"\n"


def end_of_http(data: bytes, start: int) -> int:
    """Where the part of `data` from `start` ends that is read at once."""
    end = min(len(data), start + BYTES_AT_ONCE)
    num_lines = data.count(_NEWLINE, start, end)
    while num_lines > LINES_AT_ONCE:
        half = (start + end) // 2
        end, num_lines = half, data.count(_NEWLINE, start, half)
    return end


def end_of_bytes(data: bytes, start: int) -> int:
    """The same, in a body of a known length, and where it is frames that are counted."""
    return min(len(data), start + BYTES_AT_ONCE)
