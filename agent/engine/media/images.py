"""Decodes picture files within limits: PNG, JPEG, WebP, and the first frame of a GIF.

The header gives the number of pixels, so a small file that would become a huge picture is refused
before it is decoded. Cameras store pictures as the sensor sees them, together with the orientation
(EXIF): pixels are turned the way viewers show them.
"""

import io
import struct
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from .reader import UnreadableMediaError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")

MOST_PIXELS = 40_000_000
"""Maximum pixels: a picture of a modern camera; a decoded pixel takes three bytes."""

MOST_SIDE = 16_384
_BOUNDS = (
    f"at most {MOST_PIXELS // 1_000_000} million are read, and {MOST_SIDE} on a side: send a "
    "smaller one"
)
MOST_SCANS = 64
"""Maximum scans of a progressive JPEG; encoders write about 10.

A scan may have as few as 60 bytes, and takes as long as any other scan.
"""
MOST_SEGMENTS = 10_000
"""Maximum metadata segments of a JPEG; joining them takes quadratic time."""
MOST_RATIO = 200
"""Maximum ratio of the sides: models that scale pictures refuse longer strips."""

_TURNS: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation that makes a picture upright, by its EXIF orientation; 1 is upright."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture.

    `pixels` are rows of columns of red, green and blue: (height, width, 3), contiguous.
    """

    pixels: NDArray[np.uint8]

    @property
    def width(self) -> int:
        """In pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """In pixels."""
        return int(self.pixels.shape[0])


def decode(data: bytes) -> Picture:
    """Decode the picture in `data`. Raises `UnreadableMediaError`."""
    _check_jpeg(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures, which are refused below
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check_size(*image.size)
                pixels = image.convert("RGB")
                turn = _TURNS.get(_orientation(image))
                return Picture(
                    np.ascontiguousarray(pixels if turn is None else pixels.transpose(turn))
                )
    except UnreadableMediaError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableMediaError(
            "this is not a PNG, JPEG, WebP or GIF file; send one of these formats"
        ) from error
    except Image.DecompressionBombError as error:
        raise UnreadableMediaError(f"the picture has too many pixels; {_BOUNDS}") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise UnreadableMediaError(f"the picture cannot be decoded: {error}") from error


def _check_jpeg(data: bytes) -> None:
    """Refuse a JPEG that takes far longer to read than its size suggests."""
    if not data.startswith(b"\xff\xd8"):
        return
    num_segments = sum(data.count(bytes((0xFF, kind))) for kind in range(0xE0, 0xF0))
    if data.count(b"\xff\xda") > MOST_SCANS or num_segments > MOST_SEGMENTS:
        raise UnreadableMediaError(
            f"the JPEG file has more than {MOST_SCANS} scans or {MOST_SEGMENTS} segments; save it "
            "again, or send a PNG"
        )


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation; `None` if it cannot be read, as in viewers."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, struct.error):
        return None


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise UnreadableMediaError("the picture has no pixels")
    if width * height > MOST_PIXELS or max(width, height) > MOST_SIDE:
        raise UnreadableMediaError(
            f"the picture has {width} x {height} pixels, too many; {_BOUNDS}"
        )
    if max(width, height) > MOST_RATIO * min(width, height):
        raise UnreadableMediaError(
            f"the picture has {width} x {height} pixels; one side may be at most {MOST_RATIO} "
            "times the other"
        )
