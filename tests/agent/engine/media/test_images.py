"""Picture files: what is read, and what is refused before it is decoded."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import ExifTags, Image

from arriero.agent.engine.media.images import MOST_PIXELS, MOST_SCANS, MOST_SEGMENTS, decode
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


STORED: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    1: lambda rows: rows,
    2: np.fliplr,
    3: lambda rows: np.rot90(rows, 2),
    4: np.flipud,
    5: lambda rows: rows.swapaxes(0, 1),
    6: lambda rows: np.rot90(rows, 1),
    7: lambda rows: np.rot90(rows, 2).swapaxes(0, 1),
    8: lambda rows: np.rot90(rows, -1),
}
"""How upright rows lie in a file, by the orientation that it says."""


def upright() -> NDArray[np.uint8]:
    """A picture that looks different whichever way it is turned; each patch is a JPEG's block."""
    patches = np.array([[[200, 0, 0], [0, 200, 0], [0, 0, 200]], [[0, 0, 0], [250] * 3, [120] * 3]])
    return patches.repeat(16, axis=0).repeat(16, axis=1).astype(np.uint8)


def turned(kind: str, orientation: int, **options: object) -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    rows = np.ascontiguousarray(STORED[orientation](upright()))
    out = io.BytesIO()
    Image.fromarray(rows).save(out, kind, exif=exif, **options)
    return out.getvalue()


@pytest.mark.parametrize("orientation", sorted(STORED))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_pictures_are_turned_the_way_they_were_held(kind: str, orientation: int) -> None:
    exact: dict[str, dict[str, object]] = {
        "WEBP": {"lossless": True},
        "JPEG": {"quality": 100, "subsampling": 0},
    }
    read = decode(turned(kind, orientation, **exact.get(kind, {})))
    assert read.pixels.shape == upright().shape
    assert read.pixels.flags.c_contiguous
    assert np.abs(read.pixels.astype(int) - upright()).max() < 12


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0MM", b"Exif\0\0II*\0\xff\xff\xff\xff", b"x"]
)
def test_what_says_nothing_of_how_it_was_held_is_read_as_it_lies(exif: bytes) -> None:
    for kind in ("JPEG", "PNG", "WEBP"):
        assert decode(picture(kind, exif=exif)).pixels.shape == (3, 5, 3)


@given(st.binary(max_size=80))
def test_broken_words_about_it_are_no_reason_to_refuse_a_picture(noise: bytes) -> None:
    head = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01"
    for exif in (head + noise, b"Exif\0\0" + noise):
        assert decode(picture("JPEG", exif=exif)).pixels.size == 3 * 5 * 3


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "PPM"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(UnreadableMediaError, match="not a PNG, JPEG, WebP or GIF"):
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


def scans(number: int) -> bytes:
    """A progressive JPEG whose last scan comes again, so that there are so many."""
    data = picture("JPEG", (40, 40), progressive=True)
    last = data.rindex(b"\xff\xda")
    more = number - data.count(b"\xff\xda")
    return data[:-2] + data[last:-2] * more + data[-2:]


def segments(number: int) -> bytes:
    data = picture("JPEG")
    exif = b"\xff\xe1\x00\x09Exif\0\0x"
    return data[:2] + exif * (number - 1) + data[2:]


@pytest.mark.parametrize(
    ("make", "most"), [(scans, MOST_SCANS), (segments, MOST_SEGMENTS)], ids=["scans", "segments"]
)
def test_a_small_file_that_takes_long_is_refused(make: Callable[[int], bytes], most: int) -> None:
    decode(make(most))
    with pytest.raises(UnreadableMediaError, match="save it again"):
        decode(make(most + 1))
