"""How long sound files are, before they are decoded."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.media.audio import seconds_of
from arriero.agent.engine.media.reader import UnreadableMediaError
from tests.agent.engine.llama.projectors import wav

FRAME = bytes.fromhex("fffb9000") + bytes(413)
"""Of MP3: MPEG 1, layer III, 128 kbit/s at 44.1 kHz: 1152 samples in 417 bytes."""


def test_the_length_of_plain_samples() -> None:
    assert seconds_of(wav(1.5)) == 1.5
    assert seconds_of(wav(0.5, rate=44_100)) == 0.5


def test_chunks_before_the_samples_are_passed_over() -> None:
    data = wav(1.0)
    note = struct.pack("<4sI", b"LIST", 3) + b"abc\0"
    assert seconds_of(data[:12] + note + data[12:]) == 1.0


def test_frames_of_mp3_are_counted() -> None:
    expected = pytest.approx(10 * 1152 / 44_100)
    assert seconds_of(10 * FRAME) == expected
    assert seconds_of(b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + 10 * FRAME) == expected
    low = bytes.fromhex("ffe39000") + bytes(100)  # MPEG 2.5: 576 samples at 11,025 Hz, at most 1152
    assert 3 * 576 / 11_025 <= seconds_of(3 * low) <= 3 * 1152 / 11_025


def patched(place: int, form: str, value: int) -> bytes:
    data = bytearray(wav(0.1))
    struct.pack_into(form, data, place, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a WAV or MP3"),
        (b"fLaC....", "not a WAV or MP3"),
        (b"\xff\xfb", "no sound"),
        (b"\xff\xfe" * 50, "no sound"),
        (wav(0.1)[:40], "no format or no sound"),
        (wav(0.1)[:30], "valid format"),
        (wav(0.1)[:-1], "ends before"),
        (patched(40, "<I", 2**32 - 1), "ends before"),
        (patched(20, "<H", 17), "compressed"),
        (patched(20, "<H", 0xFFFE), "compressed"),
        (patched(34, "<H", 4), "compressed"),
        (patched(24, "<I", 1), "4000 to 192000 Hz"),
        (patched(22, "<H", 0), "0 channels"),
        (patched(16, "<I", 8), "valid format"),
    ],
)
def test_what_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableMediaError, match=why):
        seconds_of(data)


@given(st.sampled_from((b"", b"RIFF\0\0\0\0WAVE", b"ID3", wav(0.001), FRAME)), st.binary())
def test_any_bytes(beginning: bytes, rest: bytes) -> None:
    with suppress(UnreadableMediaError):
        assert seconds_of(beginning + rest) >= 0
