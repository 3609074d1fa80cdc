"""Vectors in the requested encoding: numbers, or 32-bit floats in base64 as agents send them."""

import base64
import struct
from typing import Literal

from ....shared.queries import Vector

Encoding = Literal["float", "base64"]

_FLOAT_BYTES = 4


def encoded(vector: Vector, encoding: Encoding) -> str | list[float]:
    """The vector in that encoding; base64 is passed through."""
    if encoding == "base64":
        return vector.vector
    data = base64.b64decode(vector.vector)
    return list(struct.unpack(f"<{len(data) // _FLOAT_BYTES}f", data))
