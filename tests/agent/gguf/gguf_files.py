"""Small GGUF headers, as bytes."""

import math
import struct
from collections.abc import Mapping
from typing import Any


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(of: Any) -> bytes:
    match of:
        case bool():
            return struct.pack("<I?", 7, of)
        case int():
            return struct.pack("<IQ", 10, of)
        case float():
            return struct.pack("<Id", 12, of)
        case str():
            return struct.pack("<I", 8) + text(of)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(of)) + b"".join(map(text, of))
        case _:
            return struct.pack(f"<IIQ{len(of)}Q", 9, 10, len(of), *of)


def header(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]] = {}) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [text(key) + value(each) for key, each in metadata.items()]
    offset = 0
    for name, shape in tensors.items():
        parts.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
        offset += -(-4 * math.prod(shape) // 32) * 32  # of type F32
    return b"".join(parts)
