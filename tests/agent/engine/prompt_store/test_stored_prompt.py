"""The format of stored prompts: what was written comes back, anything else is refused by name."""

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.prompt_store.stored_prompt import (
    DIGEST_BYTES,
    MAGIC,
    MAX_DESCRIPTION,
    VERSION,
    ModelIdentity,
    Origin,
    Piece,
    StoredPrompt,
    StoredState,
    UnusableFile,
    pack,
    unpack,
)

MODEL = ModelIdentity(architecture="qwen3", parameters=7, size_bytes=14, digest="abc")
ORIGIN = Origin(model=MODEL, engine="llama.cpp 1", cache="f16")
PROMPT = StoredPrompt(Prompt((1, 2, 2**31 - 1)), (Piece(2, b"state of two"), Piece(1, b"of one")))
FILE = b"".join(pack("key", ORIGIN, PROMPT))


def read(file: bytes, *, key: str = "key", origin: Origin = ORIGIN) -> StoredPrompt:
    return unpack(io.BytesIO(file), len(file), key=key, origin=origin)


def why(file: bytes, *, key: str = "key", origin: Origin = ORIGIN) -> str:
    with pytest.raises(UnusableFile) as refused:
        read(file, key=key, origin=origin)
    return str(refused.value)


@given(
    key=st.text(st.characters(codec="utf-8"), min_size=1, max_size=256),
    states=st.lists(st.tuples(st.integers(1, 9), st.binary())),
    first=st.integers(0, 2**31 - 1),
)
def test_what_was_packed_comes_back(key: str, states: list[tuple[int, bytes]], first: int) -> None:
    pieces = tuple(Piece(count, state) for count, state in states)
    tokens = tuple((first + i) % 2**31 for i in range(sum(count for count, _ in states)))
    prompt = StoredPrompt(Prompt(tokens), pieces)
    assert read(b"".join(pack(key, ORIGIN, prompt)), key=key) == prompt


CHECKPOINTS = StoredPrompt(
    Prompt(tuple(range(10))),
    (Piece(4, b"block"), Piece(4, b"another")),
    checkpoints=(
        StoredState(3, b"three", b"state"),
        StoredState(8, b"four", b""),
        StoredState(10, b"2", b"s"),
    ),
)


def test_checkpoints_come_back() -> None:
    file = b"".join(pack("key", ORIGIN, CHECKPOINTS))
    assert read(file) == CHECKPOINTS
    few = replace(CHECKPOINTS, pieces=())
    assert read(b"".join(pack("key", ORIGIN, few))) == few, "of a prompt shorter than a block"
    for lengths in ((3, 11), (8, 3), (3, 3), (0, 3)):
        wrong = tuple(StoredState(length, b"", b"") for length in lengths)
        damaged = replace(CHECKPOINTS, checkpoints=wrong)
        assert "checkpoints do not match" in why(b"".join(pack("key", ORIGIN, damaged)))
    long = replace(CHECKPOINTS, pieces=CHECKPOINTS.pieces * 2)
    assert "pieces do not match" in why(b"".join(pack("key", ORIGIN, long)))


def test_the_first_tokens_have_the_checkpoints_among_them() -> None:
    first = CHECKPOINTS.first(8)
    assert [one.length for one in first.checkpoints] == [3, 8]
    assert (first.prompt, first.pieces) == (CHECKPOINTS.prompt.part(0, 8), CHECKPOINTS.pieces)
    assert first.is_usable and not StoredPrompt(first.prompt, ()).is_usable


def test_what_keys_have_in_common_does_not_end_within_media() -> None:
    assert CHECKPOINTS.num_common((0, 1, 2, 9), 10) == 3
    assert CHECKPOINTS.num_common(tuple(range(12)), 20) == 10
    assert CHECKPOINTS.num_common(tuple(range(12)), 7) == 7
    shown = Prompt((1,), Media(b"picture", 4), (2,))
    assert StoredPrompt(shown, ()).num_common(shown.keys, 3) == 1


def test_states_are_not_copied() -> None:
    parts = pack("key", ORIGIN, PROMPT)
    assert all(any(part is piece.state for part in parts) for piece in PROMPT.pieces)


@pytest.mark.parametrize(("length", "num_pieces"), [(0, 0), (1, 1), (2, 1), (3, 2)])
def test_the_first_tokens_are_in_the_first_pieces(length: int, num_pieces: int) -> None:
    first = PROMPT.first(length)
    assert first.pieces == PROMPT.pieces[:num_pieces]
    assert first.prompt == PROMPT.prompt.part(0, sum(piece.num_tokens for piece in first.pieces))


def test_only_tokens_are_stored() -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        pack("key", ORIGIN, StoredPrompt(Prompt((1,), Media(b"image", 2)), PROMPT.pieces))


def test_the_adapter_is_stored_where_there_is_one() -> None:
    under = StoredPrompt(Prompt((1, 2, 3), adapter="lora*0.5"), PROMPT.pieces)
    found = read(b"".join(pack("key", ORIGIN, under)))
    assert found == under != PROMPT
    assert found.prompt.adapter == "lora*0.5"
    assert b"adapter" not in b"".join(pack("key", ORIGIN, PROMPT)), "as agents before wrote it"


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (0, 3), (3,)])
def test_pieces_of_other_tokens_are_refused(counts: tuple[int, ...]) -> None:
    lying = StoredPrompt(PROMPT.prompt, tuple(Piece(count, b"s") for count in counts))
    file = b"".join(pack("key", ORIGIN, lying))
    if counts == (3,):
        assert read(file) == lying
    else:
        assert "pieces" in why(file)


@pytest.mark.parametrize("size", range(len(FILE)))
def test_a_torn_file_is_refused(size: int) -> None:
    assert why(FILE[:size])
    with pytest.raises(UnusableFile, match="damaged"):
        # The folder says it is whole, and the end is missing all the same.
        unpack(io.BytesIO(FILE[:size]), len(FILE), key="key", origin=ORIGIN)


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_one_wrong_byte_is_refused(position: int, change: int) -> None:
    damaged = bytearray(FILE)
    damaged[position] ^= change
    assert why(bytes(damaged))


@given(st.binary())
def test_random_bytes_are_refused(junk: bytes) -> None:
    assert why(junk)
    assert why(FILE[:14] + junk)
    assert "extra bytes" in why(FILE + b"more")


def test_what_belongs_elsewhere_is_refused() -> None:
    other = replace(MODEL, digest="abd")
    assert why(FILE, key="other") == "belongs to another key"
    assert why(FILE, origin=replace(ORIGIN, model=other)) == "was saved with another model (qwen3)"
    assert "engine (llama.cpp 1)" in why(FILE, origin=replace(ORIGIN, engine="llama.cpp 2"))
    assert "cache layout (f16)" in why(FILE, origin=replace(ORIGIN, cache="q8_0"))


def test_another_kind_and_another_version_are_refused() -> None:
    assert why(b"GGUFGGUF" + FILE[8:]) == "is not a stored prompt"
    newer = MAGIC + struct.pack("<H", VERSION + 1) + FILE[10:]
    assert f"format version {VERSION + 1}" in why(newer)
    assert "too long" in why(FILE[:10] + struct.pack("<I", MAX_DESCRIPTION + 1) + FILE[14:])


def lies() -> Iterator[bytes]:
    """Files whose description is well formed and promises more than any file can hold."""
    (length,) = struct.unpack("<I", FILE[10:14])
    description = json.loads(FILE[14 : 14 + length])
    for name in ("num_tokens", "num_pieces"):
        for count in (2**20, 2**62, 2**80):
            lie = json.dumps(description | {name: count}).encode()
            yield FILE[:10] + struct.pack("<I", len(lie)) + lie + FILE[14 + length :]


@pytest.mark.parametrize("file", [*lies()])
def test_a_description_that_lies_allocates_nothing(file: bytes) -> None:
    sizes: list[int] = []

    class Recording(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(size or 0)
            return super().read(size)

    with pytest.raises(UnusableFile, match="damaged: it ends too early"):
        unpack(Recording(file), len(file), key="key", origin=ORIGIN)
    assert max(sizes) <= len(file) - DIGEST_BYTES
