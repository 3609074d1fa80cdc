import struct
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.gguf.header import (
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_VALUE,
    GgufHeader,
    HeaderError,
    read_header,
)
from tests.agent.gguf.gguf_files import header, text

DEMO = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"
PLAIN = header(
    {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.attention.head_count_kv": [1, 2],
        "tokenizer.ggml.tokens": ["a", "b", "c"],
        "is": True,
        "rate": 0.5,
    },
    {"x": (2, 3), "y": (4,)},
)


def read(data: bytes) -> GgufHeader:
    return read_header(BytesIO(data))


def test_what_it_says() -> None:
    found = read(PLAIN)
    assert found.architecture == "llama"
    assert (found.number("block_count"), found.number("missing")) == (2, None)
    assert found.numbers("attention.head_count_kv", 2) == [1, 2]
    assert found.numbers("block_count", 3) == [2, 2, 2]
    assert found.metadata["is"] is True and found.metadata["rate"] == 0.5
    assert found.lengths["tokenizer.ggml.tokens"] == 3
    assert (found.num_tensors, found.num_parameters) == (2, 10)
    assert found.data_offset == -(-len(PLAIN) // 32) * 32


def test_a_real_file() -> None:
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(DEMO)
    with DEMO.open("rb") as file:
        found = read_header(file)
    assert found.data_offset == reader.data_offset
    assert found.num_tensors == len(reader.tensors)
    assert found.num_parameters == sum(int(each.n_elements) for each in reader.tensors)


def prefix(num_tensors: int = 0, num_entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries)


NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends within"),
        (b"PK\x03\x04", "not in GGUF"),
        (prefix(version=1), "version 1"),
        (prefix(num_tensors=2**40), "tensors, more than"),
        (prefix(num_entries=2**40), "entries, more than"),
        (prefix(num_entries=1) + struct.pack("<Q", MAX_VALUE + 1), "more than"),
        (prefix(num_entries=1) + text("k") + struct.pack("<I", 99), "unknown type 99"),
        (prefix(num_entries=1) + text("k") + struct.pack("<I", 9) + NESTED, "too deep"),
        (prefix(num_entries=1) + text("k") + struct.pack("<IIQ", 9, 8, MAX_ITEMS + 1), "items"),
        (prefix(num_tensors=1) + text("t") + struct.pack("<I", 9), "9 dimensions"),
        (prefix(1) + text("t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0), "impossibly large"),
        (header({"general.alignment": 0}), "alignment"),
        (PLAIN[:-1], "ends within"),
    ],
)
def test_hostile_files_are_refused_with_a_sentence(data: bytes, why: str) -> None:
    with pytest.raises(HeaderError, match=why):
        read(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"", prefix(num_tensors=1, num_entries=1)):
        try:
            read(start + data)
        except HeaderError:
            continue


def test_long_texts_and_lists_are_passed_over() -> None:
    found = read(header({"long": "x" * 2**17, "many": list(range(2000)), "short": [1]}))
    assert "long" not in found.metadata and "many" not in found.metadata
    assert found.metadata["short"] == (1,)
    assert found.lengths == {"many": 2000, "short": 1}
