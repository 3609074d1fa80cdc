"""A short sound, to try whether a server hears: a tone as a WAV file."""

import struct
from base64 import b64encode
from math import pi, sin

RATE = 16_000
SECONDS = 0.5
"""Encoders hear pieces of a few hundredths of a second; servers refuse a sound without one."""

_PITCH = 440
_LOUDNESS = 9_000


def tone() -> str:
    """16 bits on one channel, in base64."""
    count = int(RATE * SECONDS)
    samples = (int(_LOUDNESS * sin(2 * pi * _PITCH * at / RATE)) for at in range(count))
    data = struct.pack(f"<{count}h", *samples)
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return b64encode(struct.pack("<4sI", b"RIFF", len(body)) + body).decode()
