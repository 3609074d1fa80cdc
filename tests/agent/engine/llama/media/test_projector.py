"""Pictures through the real engine: as mtmd's own helper computes them in one piece."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import llama_cpp.mtmd_cpp as mtmd
import numpy as np
import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.media.projector import Projector
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.media.reader import UnreadableMediaError
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.prompt import Media, Prompt, Span
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.llama.projectors import (
    DEMO_MODEL,
    GEMMA_TOKENS,
    HEARD_TOKENS,
    LLAVA_TOKENS,
    png,
    wav,
    write_gemma,
    write_gemma_model,
    write_llava,
    write_qwen,
    write_qwen_model,
    write_ultravox,
)
from tests.agent.engine.llama.running import GREEDY, generate

BEFORE, AFTER = "<|im_start|>user\nWhat is this: ", " Tell me!<|im_end|>\n<|im_start|>assistant\n"
PICTURE = png(90, 60)
OTHER = png(60, 90, seed=3)
NUM_TOKENS = 12
PROMPTS: dict[int, tuple[str | bytes, ...]] = {
    1: (BEFORE, PICTURE, AFTER),
    2: (BEFORE, PICTURE, " Why?", AFTER),
    3: (BEFORE, OTHER, AFTER),
    4: (BEFORE, "a slot", AFTER),
    5: (BEFORE, PICTURE, OTHER, AFTER),
    6: (BEFORE, OTHER, PICTURE, AFTER),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """By family: a model and its projector."""
    folder = tmp_path_factory.mktemp("projectors")
    return {
        "llava": (DEMO_MODEL, write_llava(folder / "llava.gguf")),
        "qwen": (
            write_qwen_model(folder / "qwen-model.gguf"),
            write_qwen(folder / "qwen.gguf"),
        ),
        "gemma": (
            write_gemma_model(folder / "gemma-model.gguf"),
            write_gemma(folder / "gemma.gguf"),
        ),
    }


@pytest.fixture(scope="module", params=["llava", "qwen", "gemma"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def loaded(model: Path, projector: Path) -> LlamaEngine:
    engine = load_engine(
        model,
        LoadOptions(
            slots=4,
            context_size=256,
            threads=1,
            gpu_layers=0,
            kernels="plain",
            host_cache=2**24,
            projector=projector,
        ),
    )
    assert isinstance(engine, LlamaEngine)
    return engine


@pytest.fixture(scope="module")
def engine(files: dict[str, tuple[Path, Path]], family: str) -> Iterator[LlamaEngine]:
    engine = loaded(*files[family])
    yield engine
    engine.free()


def spans(engine: LlamaEngine, *parts: str | bytes) -> tuple[Span, ...]:
    reader = engine.model.media
    assert reader is not None
    made: list[Span] = []
    for part in parts:
        if isinstance(part, bytes):
            read = reader.read_audio if part.startswith(b"RIFF") else reader.read_image
            made += read(part)
        else:
            tokens = engine.model.vocab.tokenize(part, add_special=False, parse_special=True)
            made.append(tokens)
    return tuple(made)


def asks(engine: LlamaEngine, id: int, *parts: str | bytes) -> NewSequence:
    prompt = Prompt(*spans(engine, *parts))
    return NewSequence(id=SequenceId(id), prompt=prompt, max_tokens=NUM_TOKENS, sampling=GREEDY)


def answers(engine: LlamaEngine, *wanted: NewSequence) -> dict[int, tuple[int, ...]]:
    ended, _ = generate(engine, [*wanted], slots=4, num_cells=1024)
    assert all(reason in ("stop", "length") for _, reason in ended.values())
    return {id: tokens for id, (tokens, _) in ended.items()}


def in_one_piece(model_path: Path, projector_path: Path, *parts: str | bytes) -> tuple[int, ...]:
    """Greedy tokens after `parts`, computed by mtmd's helper alone."""
    model = Model(model_path, LoadOptions(gpu_layers=0))
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model.handle, params)
    settings = mtmd.mtmd_context_params_default()
    settings.use_gpu, settings.n_threads, settings.warmup = False, 1, False
    projector = mtmd.mtmd_init_from_file(bytes(projector_path), model.handle, settings)
    marker = mtmd.mtmd_default_marker()
    text = b"".join(marker if isinstance(part, bytes) else part.encode() for part in parts)
    pictures = [part for part in parts if isinstance(part, bytes)]
    bitmaps = (ctypes.c_void_p * len(pictures))(*(_bitmap(projector, each) for each in pictures))
    given = mtmd.mtmd_input_text()
    given.text, given.text_len, given.add_special, given.parse_special = (
        text,
        len(text),
        False,
        True,
    )
    chunks = mtmd.mtmd_input_chunks_init()
    assert mtmd.mtmd_tokenize(projector, chunks, ctypes.byref(given), bitmaps, len(pictures)) == 0
    end = llama_cpp.llama_pos()
    code = mtmd.mtmd_helper_eval_chunks(
        projector, context, chunks, 0, 0, 512, True, ctypes.byref(end)
    )
    assert code == 0
    tokens: list[int] = []
    position = end.value
    while len(tokens) < NUM_TOKENS:
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        token = int(np.ctypeslib.as_array(logits, (model.vocab.size,)).argmax())
        if token in model.vocab.end_tokens:
            break
        tokens.append(token)
        batch = llama_cpp.llama_batch_init(1, 0, 1)
        batch.n_tokens, batch.token[0], batch.pos[0] = 1, token, position
        batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, 1
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_batch_free(batch)
        position += 1
    for bitmap in bitmaps:
        mtmd.mtmd_bitmap_free(bitmap)
    mtmd.mtmd_input_chunks_free(chunks)
    mtmd.mtmd_free(projector)
    llama_cpp.llama_free(context)
    model.free()
    return tuple(tokens)


def _bitmap(projector: Any, data: bytes) -> Any:
    buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
    return mtmd.mtmd_helper_bitmap_init_from_buf(projector, buffer, len(data), False)


def test_answers_are_those_of_llama_cpp_in_one_piece(
    engine: LlamaEngine, files: dict[str, tuple[Path, Path]], family: str
) -> None:
    parts = (BEFORE, PICTURE, " and this: ", png(50, 80, seed=1), AFTER)
    expected = in_one_piece(*files[family], *parts)
    assert len(set(expected)) > 1, "the model says something"
    assert answers(engine, asks(engine, 1, *parts)) == {1: expected}
    other = in_one_piece(*files[family], BEFORE, png(90, 60, seed=2), AFTER)
    assert other != in_one_piece(*files[family], BEFORE, PICTURE, AFTER), "it looks at pictures"


@pytest.fixture(scope="module")
def wanted(engine: LlamaEngine) -> dict[int, tuple[int, ...]]:
    """The answers to `PROMPTS`, each computed alone."""
    found = {}
    for id in PROMPTS:
        found |= answers(engine, asks(engine, id, *PROMPTS[id]))
    return found


@pytest.mark.parametrize("num_cells", [1024, 160], ids=["room for all", "preemption"])
def test_pictures_are_read_beside_others_and_shared(
    engine: LlamaEngine, wanted: dict[int, tuple[int, ...]], num_cells: int
) -> None:
    """Several at once, with and without pictures, in chunks."""
    sequences = [asks(engine, id, *parts) for id, parts in PROMPTS.items()]
    ended, statistics = generate(engine, sequences, slots=4, num_cells=num_cells)
    assert {id: tokens for id, (tokens, _) in ended.items()} == wanted
    assert statistics.cached_tokens >= LLAVA_TOKENS or num_cells < 1024


def test_a_picture_that_was_read_is_not_read_again(engine: LlamaEngine) -> None:
    sequences = [asks(engine, 1, *PROMPTS[1]), asks(engine, 2, *PROMPTS[2])]
    _, statistics = generate(engine, sequences, slots=1, num_cells=1024)
    spans = sequences[0].prompt.spans
    assert statistics.cached_tokens >= sum(_length(span) for span in spans[:-1])
    engine.open(replace(sequences[0], id=SequenceId(9)))  # its pixels are gone: it is cached
    engine.close(SequenceId(9))


def test_a_cached_prefix_ends_at_the_border_of_a_picture(engine: LlamaEngine) -> None:
    first, second = asks(engine, 1, *PROMPTS[1]), asks(engine, 3, *PROMPTS[3])
    _, statistics = generate(engine, [first, second], slots=1, num_cells=1024)
    assert statistics.cached_tokens == _length(first.prompt.spans[0])


def _length(span: Span) -> int:
    return span.num_positions if isinstance(span, Media) else len(span)


def test_what_is_no_picture_is_refused(engine: LlamaEngine) -> None:
    reader = engine.model.media
    assert reader is not None
    with pytest.raises(UnreadableMediaError, match="not a PNG"):
        reader.read_image(b"hello")


def test_a_picture_whose_pixels_are_gone_cannot_be_encoded(
    files: dict[str, tuple[Path, Path]],
) -> None:
    model_path, path = files["llava"]
    model = Model(model_path, LoadOptions(gpu_layers=0))
    projector = Projector(path, model.handle, threads=1, is_offloaded=False)
    try:
        [picture] = [each for each in projector.read_image(PICTURE) if isinstance(each, Media)]
        encoded = projector.encode(picture)
        assert encoded.rows.shape[0] == picture.num_positions == LLAVA_TOKENS
        assert projector.encode(picture) is encoded, "from the cache"
        assert projector.num_cached_bytes == encoded.num_bytes
        with pytest.raises(ValueError, match="pixels were freed"):
            projector.encode(Media(b"other", LLAVA_TOKENS))
    finally:
        projector.free()
        model.free()


def test_a_model_that_looks_back_a_part_of_the_way_takes_pictures_whole(tmp_path: Path) -> None:
    """As Gemma 3's: most layers look at the last tokens only, and whole states alone can be had."""
    model = write_gemma_model(tmp_path / "model.gguf", window=32)
    projector = write_gemma(tmp_path / "projector.gguf")
    engine = loaded(model, projector)
    assert not engine.capacity.can_share
    parts = {1: (BEFORE, PICTURE, AFTER), 2: (BEFORE, png(50, 80, seed=1), PICTURE, AFTER)}
    expected = {id: in_one_piece(model, projector, *each) for id, each in parts.items()}
    assert answers(engine, *(asks(engine, id, *each) for id, each in parts.items())) == expected
    engine.free()


def test_a_picture_that_one_step_cannot_compute_is_refused(
    files: dict[str, tuple[Path, Path]],
) -> None:
    model_path, path = files["gemma"]
    model = Model(model_path, LoadOptions(gpu_layers=0))
    try:
        small = GEMMA_TOKENS - 1
        projector = Projector(path, model.handle, threads=1, is_offloaded=False, most_at_once=small)
        with pytest.raises(UnreadableMediaError, match=f"{GEMMA_TOKENS} tokens.*at most {small}"):
            projector.read_image(PICTURE)
        projector.free()
    finally:
        model.free()


def test_the_tokens_of_a_picture_look_at_each_other(
    files: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed like text the same rows give another answer: that the mask is set is seen."""
    engine = loaded(*files["gemma"])
    asked = asks(engine, 1, *PROMPTS[1])
    looked = answers(engine, asked)
    monkeypatch.setattr(llama_cpp, "llama_set_causal_attn", lambda *_: None)
    assert answers(engine, replace(asked, id=SequenceId(2)))[2] != looked[1]
    engine.free()


def test_sounds_are_heard_as_llama_cpp_hears_them(tmp_path: Path) -> None:
    """Beside texts, in chunks, with the same one shared; one is longer than half a minute."""
    projector = write_ultravox(tmp_path / "ears.gguf")
    engine = loaded(DEMO_MODEL, projector)
    sounds = wav(1.0), wav(31.0, seed=1, rate=4000)
    prompts = {1: (BEFORE, sounds[0], AFTER), 2: (BEFORE, sounds[1], " Why?", AFTER)}
    expected = {id: in_one_piece(DEMO_MODEL, projector, *parts) for id, parts in prompts.items()}
    assert expected[1] != in_one_piece(DEMO_MODEL, projector, BEFORE, wav(25.0, seed=2), AFTER)
    prompts[3] = (BEFORE, "a slot", AFTER)
    sequences = [asks(engine, id, *parts) for id, parts in prompts.items()]
    assert sum(media.num_positions for media in sequences[1].prompt.media) == 2 * HEARD_TOKENS
    found = answers(engine, *sequences)
    assert {id: found[id] for id in expected} == expected
    assert engine.model.info.tasks == ("generate", "embed", "audio")
    assert isinstance(engine.model.media, Projector)
    assert engine.model.media.senses == ("audio",)
    with pytest.raises(UnreadableMediaError, match="600 s"):
        engine.model.media.read_audio(wav(601.0, rate=4000))
    engine.free()


def test_a_projector_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"demo\.gguf"):
        load_engine(
            DEMO_MODEL,
            LoadOptions(slots=1, context_size=64, threads=1, gpu_layers=0, projector=DEMO_MODEL),
        )


def test_streams_take_pictures_but_none_with_places(files: dict[str, tuple[Path, Path]]) -> None:
    def load(family: str) -> LlamaEngine:
        model, projector = files[family]
        engine = load_engine(
            model,
            LoadOptions(
                slots=4,
                context_size=256,
                threads=1,
                gpu_layers=0,
                kernels="plain",
                host_cache=2**24,
                kv_layout="streams",
                projector=projector,
            ),
        )
        assert isinstance(engine, LlamaEngine)
        return engine

    engine = load("llava")
    sequences = [asks(engine, id, *parts) for id, parts in PROMPTS.items()]
    together = answers(engine, *sequences)
    assert together[1] == in_one_piece(*files["llava"], *PROMPTS[1])
    engine.free()
    with pytest.raises(ModelError, match="kv-layout streams"):
        load("qwen")
