"""A projector: the part of a model that converts media to embeddings, in a file of its own.

mtmd reads the file. mtmd knows how each family of models scales and cuts pictures and decodes
sounds.
"""

import ctypes
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import llama_cpp.mtmd_cpp as mtmd
import numpy as np
from numpy.typing import NDArray

from .....shared.inference.request import Sense
from ...media.audio import MOST_SECONDS, seconds_of
from ...media.images import decode
from ...media.reader import UnreadableMediaError
from ...model_error import ModelError
from ...prompt import Media, Span
from ..log import route_log
from ..model import check_model_file
from .encoded import NUM_PARTS, EncodedCache, EncodedMedia

MOST_CACHED = 256 * 2**20
"""Maximum bytes of encoded media cached for later requests with the same media."""


class _Chunk:
    """mtmd's own copy of a part of media, scaled and cut. It is freed with this object, or
    earlier.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = mtmd.mtmd_input_chunk_copy(handle)
        self.free = weakref.finalize(self, mtmd.mtmd_input_chunk_free, self.handle)


@dataclass(frozen=True, slots=True)
class _Picture(Media):
    """Media that this projector can encode until `chunk` is freed."""

    chunk: _Chunk | None = field(default=None, compare=False, repr=False)


class Projector:
    """A projector for the model with llama.cpp's `model` handle.

    `read_image` and `read_audio` may be called on any thread. `encode` and `free` may be called on
    any thread, but only on one at a time.
    """

    def __init__(
        self,
        path: Path,
        model: Any,
        *,
        threads: int,
        is_offloaded: bool,
        most_at_once: int = 512,
    ) -> None:
        """Load `path`. Raises `ModelError`. A step computes at most `most_at_once` positions."""
        check_model_file(path)
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = is_offloaded
        params.n_threads = threads
        params.print_timings = False
        params.warmup = False  # with large pictures that takes a minute on CPUs
        log = route_log()
        mtmd.mtmd_helper_log_set(log.callback, None)
        with log.hold_errors() as errors:
            handle = mtmd.mtmd_init_from_file(bytes(path), model, params)
        if not handle:
            reason = "; ".join(errors) or "llama.cpp gave no reason"
            raise ModelError(f"projector {path} does not fit this model: {reason}")
        self._handle = handle
        self._most_at_once = most_at_once
        self._width = int(llama_cpp.llama_model_n_embd_inp(model))
        self._marker = bytes(mtmd.mtmd_default_marker())
        self.has_grid = bool(mtmd.mtmd_decode_use_mrope(handle))
        """True if positions in pictures have several dimensions."""
        self.identity = f"{path.name}, {path.stat().st_size} bytes"
        self.senses = _senses(handle)
        self._cache = EncodedCache(MOST_CACHED)
        try:
            self._check(path)
        except ModelError:
            self.free()
            raise

    @property
    def num_cached_bytes(self) -> int:
        """The bytes of the cached media."""
        return self._cache.num_bytes

    def read_image(self, data: bytes) -> tuple[Span, ...]:
        """Return the spans for a picture file: the media, and tokens around them."""
        picture = decode(data)
        pixels = ctypes.cast(picture.pixels.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
        bitmap = mtmd.mtmd_bitmap_init(picture.width, picture.height, pixels)  # which copies them
        return self._read(bitmap, data, "the model does not accept a picture of this size")

    def read_audio(self, data: bytes) -> tuple[Span, ...]:
        """Return the spans for a sound file of at most `audio.MOST_SECONDS`; see `read_image`."""
        if seconds_of(data) > MOST_SECONDS:
            raise UnreadableMediaError(f"it plays for more than {MOST_SECONDS} s")
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(self._handle, buffer, len(data), False)
        if not bitmap:
            raise UnreadableMediaError("the sound cannot be decoded")
        return self._read(bitmap, data, "the model does not accept this sound")

    def _read(self, bitmap: Any, data: bytes, refusal: str) -> tuple[Span, ...]:
        """Return the spans of `bitmap`, which was made from `data`; `bitmap` is freed."""
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            code = self._tokenize(chunks, bitmap)
            if code != 0:
                raise UnreadableMediaError(refusal)
            return tuple(self._spans(chunks, sha256(data).digest()))
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)

    def encode(self, media: Media) -> EncodedMedia:
        """Return rows of embeddings for media from `read_image`, computed or from the cache.

        Raises `ValueError` if the media were freed, and `RuntimeError` if the computation fails.
        """
        encoded = self._cache.get(media.digest)
        chunk = media.chunk if isinstance(media, _Picture) else None
        if encoded is None:
            if chunk is None or not chunk.free.alive:
                raise ValueError("these media cannot be encoded: their pixels were freed")
            encoded = self._encoded(chunk.handle, media.num_positions)
            self._cache.put(media.digest, encoded)
        if chunk is not None:
            chunk.free()  # the scaled pixels are ten times the file
        return encoded

    def free(self) -> None:
        """Free everything; nothing may be called afterwards."""
        mtmd.mtmd_free(self._handle)

    def _check(self, path: Path) -> None:
        if not self.senses:
            raise ModelError(
                f"projector {path} supports neither pictures nor sounds; other media are not served"
            )

    def _tokenize(self, chunks: Any, bitmap: Any) -> int:
        text = mtmd.mtmd_input_text()
        text.text, text.text_len = self._marker, len(self._marker)
        text.add_special, text.parse_special = False, True
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        return int(mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1))

    def _spans(self, chunks: Any, digest: bytes) -> Iterator[Span]:
        for index in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, index)
            if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
                count = ctypes.c_size_t()
                tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
                yield tuple(tokens[: count.value])
            else:
                yield self._picture(chunk, sha256(b"%d " % index + digest).digest())

    def _picture(self, chunk: Any, digest: bytes) -> _Picture:
        num_positions = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        is_whole = bool(mtmd.mtmd_decode_use_non_causal(self._handle, chunk))
        if is_whole and num_positions > self._most_at_once:
            raise UnreadableMediaError(
                f"it takes {num_positions} tokens; this model computes a picture as a whole, "
                f"and the engine computes at most {self._most_at_once} at once: send a smaller one"
            )
        return _Picture(digest, num_positions, is_whole, _Chunk(chunk))

    def _encoded(self, chunk: Any, num_positions: int) -> EncodedMedia:
        code = mtmd.mtmd_encode_chunk(self._handle, chunk)
        if code != 0:
            raise RuntimeError(f"the projector could not encode media (code {code})")
        output = mtmd.mtmd_get_output_embd(self._handle)
        rows = np.ctypeslib.as_array(output, (num_positions, self._width)).copy()
        num_advanced = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        if not self.has_grid:
            return EncodedMedia(rows, num_advanced)
        if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_AUDIO:
            return EncodedMedia(rows, num_advanced, *_line(num_positions))
        origins = _places(chunk, num_positions, 0)
        return EncodedMedia(rows, num_advanced, origins, _places(chunk, num_positions, 1) - origins)


def _senses(handle: Any) -> tuple[Sense, ...]:
    has: dict[Sense, bool] = {
        "vision": mtmd.mtmd_support_vision(handle),
        "audio": mtmd.mtmd_support_audio(handle),
    }
    return tuple(sense for sense, is_there in has.items() if is_there)


def _line(num_positions: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return origins and slopes of positions that advance in all dimensions, as in a text."""
    origins = np.repeat(np.arange(num_positions, dtype=np.int32)[:, np.newaxis], NUM_PARTS, axis=1)
    return origins, np.ones_like(origins)


def _places(chunk: Any, num_positions: int, start: int) -> NDArray[np.int32]:
    """Return the positions of a picture that begins at `start`, as an array (positions, 4).

    The four parts are time, row, column and a spare part.
    """
    tokens = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
    places = (mtmd.mtmd_decoder_pos * num_positions)()
    mtmd.mtmd_helper_image_get_decoder_pos(tokens, start, places)
    parts = np.frombuffer(places, np.uint32).reshape(num_positions, 4).astype(np.int32)
    return parts[:, [0, 2, 1, 3]]  # mtmd has the column before the row
