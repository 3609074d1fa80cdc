"""Picture files: what is read, and what is refused before it is decoded."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from arriero.agent.engine.media.images import MOST_PIXELS, decode
from arriero.agent.engine.media.reader import UnreadableMediaError


def picture(kind: str, size: tuple[int, int] = (5, 3), **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 20, 10)).save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_pictures_are_rows_of_red_green_and_blue(kind: str) -> None:
    read = decode(picture(kind))
    assert (read.width, read.height) == (5, 3)
    assert read.pixels.shape == (3, 5, 3)
    assert read.pixels.flags.c_contiguous
    assert np.abs(read.pixels.astype(int) - (200, 20, 10)).max() < 12


def test_of_a_moving_picture_the_first_frame_is_read() -> None:
    second = Image.new("RGB", (5, 3), (0, 0, 255))
    data = picture("GIF", save_all=True, append_images=[second])
    assert decode(data).pixels[0, 0, 2] < 50


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "PPM"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(UnreadableMediaError, match="no PNG, JPEG, WebP or GIF"):
        decode(picture(kind))


def header(width: int, height: int) -> bytes:
    """A PNG file that says that it is so large."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + checksum + b"\0\0\0\1IDAT"


@pytest.mark.parametrize("size", [(16_000, 16_000), (8_000, 8_000), (20_000, 100), (10_000, 20)])
def test_the_header_is_believed_before_anything_is_decoded(size: tuple[int, int]) -> None:
    with pytest.raises(UnreadableMediaError, match="pixels"):
        decode(header(*size))
    assert MOST_PIXELS < 8_000 * 8_000


def test_a_file_that_ends_too_early_is_refused() -> None:
    with pytest.raises(UnreadableMediaError, match="cannot be decoded"):
        decode(picture("PNG", (300, 300))[:60])


@given(st.binary(max_size=64), st.sampled_from(["PNG", "JPEG", "WEBP", "GIF"]), st.integers(0, 40))
def test_broken_files_are_refused_or_read(noise: bytes, kind: str, place: int) -> None:
    data = picture(kind)
    try:
        decode(data[:place] + noise + data[place + len(noise) :])
    except UnreadableMediaError as error:
        assert str(error)
