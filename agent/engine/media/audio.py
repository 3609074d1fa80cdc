"""The maximum duration of an audio file, before it is decoded: WAV and MP3.

llama.cpp decodes, and reserves as much memory as a file's header claims. So this module refuses a
header that claims more than the file contains, and an encoding of unknown size.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .reader import UnreadableMediaError

MOST_SECONDS = 600
"""Maximum seconds of all audio of a request. A decoded second takes 64 kB."""

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_RATES = range(4000, 192_001)
_CHANNELS = range(1, 33)
_BITS = (8, 16, 24, 32, 64)

_MP3_RATES = np.array([44_100, 48_000, 32_000])
_RATE_DIVISORS = np.array([4, 1, 2, 1])
"""Indexed by the header's version bits: MPEG 2.5, reserved, 2, 1."""
_SAMPLES_A_FRAME = np.array([0, 1152, 1152, 384])
"""Maximum samples, indexed by the header's layer bits: reserved, III, II, I."""


def seconds_of(data: bytes) -> float:
    """Return an upper estimate of a file's duration in seconds. Raises `UnreadableMediaError`."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wav(data)
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0"):
        return _mp3(np.frombuffer(data, np.uint8))
    raise UnreadableMediaError("this is not a WAV or MP3 file; send one of these formats")


@dataclass(frozen=True, slots=True)
class _Chunk:
    kind: bytes
    body: memoryview
    size: int
    """The size that the header gives."""


def _chunks(data: bytes) -> Iterator[_Chunk]:
    place = 12
    while place + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, place)
        yield _Chunk(kind, memoryview(data)[place + 8 : place + 8 + size], size)
        place += 8 + size + size % 2


def _wav(data: bytes) -> float:
    frame_bytes, rate = 0, 0
    for chunk in _chunks(data):
        if chunk.kind == b"fmt " and not frame_bytes:
            frame_bytes, rate = _format(chunk.body)
        elif chunk.kind == b"data":
            if not frame_bytes:
                break
            if chunk.size > len(chunk.body):
                raise UnreadableMediaError("the WAV file ends before its header says")
            return chunk.size / frame_bytes / rate
    raise UnreadableMediaError("the WAV file has no format or no sound")


def _format(body: memoryview) -> tuple[int, int]:
    """Return the bytes of a frame, and the frames per second."""
    if len(body) < 16:
        raise UnreadableMediaError("the WAV file has no valid format")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if tag == _EXTENSIBLE and len(body) >= 26:
        (tag,) = struct.unpack_from("<H", body, 24)
    if tag not in (_PCM, _FLOAT) or bits not in _BITS:
        raise UnreadableMediaError("the WAV file is compressed; send plain samples, or MP3")
    if channels not in _CHANNELS or rate not in _RATES:
        raise UnreadableMediaError(
            f"the WAV file has {channels} channels at {rate} Hz; at most {_CHANNELS[-1]} channels "
            f"are read, at {_RATES[0]} to {_RATES[-1]} Hz"
        )
    return channels * bits // 8, rate


def _mp3(data: NDArray[np.uint8]) -> float:
    """Return the duration, counting everything that looks like a frame's header.

    No decoder finds more frames than that.
    """
    if len(data) < 4:
        raise UnreadableMediaError("the MP3 file has no sound")
    first, second, third = data[:-2], data[1:-1], data[2:]
    version, layer = (second >> 3) & 3, (second >> 1) & 3
    rate = (third >> 2) & 3
    is_header = (first == 0xFF) & (second >= 0xE0) & (version != 1) & (layer != 0) & (rate != 3)
    is_header &= (third >> 4) != 15
    if not is_header.any():
        raise UnreadableMediaError("the MP3 file has no sound")
    rates = _MP3_RATES[rate[is_header]] / _RATE_DIVISORS[version[is_header]]
    return float((_SAMPLES_A_FRAME[layer[is_header]] / rates).sum())
