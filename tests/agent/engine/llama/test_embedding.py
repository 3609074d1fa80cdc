"""Vectors by llama.cpp, on the demo model and on small encoders."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from arriero.agent.engine.embedding.embedding_plan import Slice
from arriero.agent.engine.llama.embedding import LlamaEmbedding, LlamaEmbeddingContext
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from tests.agent.engine.llama.encoders import write_encoder

DEMO = Path(__file__).parents[4] / "demo" / "arriero-demo.gguf"
TEXT = tuple(range(100, 160))


def opened(path: Path, *, has_memory: bool) -> Iterator[LlamaEmbeddingContext]:
    model = Model(path, LoadOptions(gpu_layers=0))
    embedding = LlamaEmbedding(
        model, LoadOptions(context_size=256, threads=1), has_memory=has_memory
    )
    assert embedding.splits == has_memory
    context = embedding.open(embedding.max_tokens, ranks=False)
    yield context
    context.free()
    model.free()


@pytest.fixture
def causal() -> Iterator[LlamaEmbeddingContext]:
    yield from opened(DEMO, has_memory=True)


@pytest.fixture
def encoder(tmp_path: Path) -> Iterator[LlamaEmbeddingContext]:
    path = write_encoder(tmp_path / "encoder.gguf", pooling=gguf.PoolingType.MEAN)
    yield from opened(path, has_memory=False)


class TestCausal:
    def test_gives_a_row_for_each_token(self, causal: LlamaEmbeddingContext) -> None:
        [rows] = causal.compute([Slice(0, 0, TEXT, True)])
        assert rows.shape == (len(TEXT), 256)
        assert np.isfinite(rows).all()

    def test_a_text_in_chunks_is_what_it_is_whole(self, causal: LlamaEmbeddingContext) -> None:
        [whole] = causal.compute([Slice(0, 0, TEXT, True)])
        parts = [
            causal.compute([Slice(1, start, TEXT[start : start + 25], start == 50)])[0]
            for start in (0, 25, 50)
        ]
        assert np.concatenate(parts) == pytest.approx(whole, abs=1e-2)

    def test_texts_in_one_chunk_do_not_see_each_other(self, causal: LlamaEmbeddingContext) -> None:
        [alone] = causal.compute([Slice(0, 0, TEXT[:9], True)])
        _, beside, _ = causal.compute(
            [Slice(n, 0, TEXT[9 * (n != 5) :][:9], True) for n in (4, 5, 6)]
        )
        assert beside == pytest.approx(alone, abs=1e-2)

    def test_it_has_cells_for_the_inputs_that_are_asked_for_and_a_chunk(self) -> None:
        model = Model(DEMO, LoadOptions(gpu_layers=0))
        embedding = LlamaEmbedding(
            model, LoadOptions(context_size=4096, threads=1), has_memory=True
        )
        context = embedding.open(100, ranks=False)
        assert context.num_cells == 100 + embedding.max_batch
        context.free()
        model.free()

    def test_cells_of_complete_texts_are_free_again(self, causal: LlamaEmbeddingContext) -> None:
        for number in range(10):
            for start in range(0, 200, 50):
                causal.compute([Slice(number, start, TEXT[:50], start == 150)])

    def test_what_was_left_behind_can_be_cleared(self, causal: LlamaEmbeddingContext) -> None:
        [first] = causal.compute([Slice(0, 0, TEXT[:9], False)])
        causal.clear()
        [again] = causal.compute([Slice(0, 0, TEXT[:9], True)])
        assert again == pytest.approx(first, abs=1e-5)


class TestEncoder:
    def test_gives_a_row_for_each_token_of_each_text(self, encoder: LlamaEmbeddingContext) -> None:
        assert encoder.num_cells == 0
        one, two = encoder.compute([Slice(0, 0, (2, 4, 3), True), Slice(1, 0, (2, 5, 6, 3), True)])
        [alone] = encoder.compute([Slice(7, 0, (2, 5, 6, 3), True)])
        assert (one.shape, two.shape) == ((3, 32), (4, 32))
        assert two == pytest.approx(alone, abs=1e-4)
        assert one != pytest.approx(two[:3], abs=1e-4)

    def test_takes_a_text_as_long_as_it_was_trained_for(
        self, encoder: LlamaEmbeddingContext
    ) -> None:
        [rows] = encoder.compute([Slice(0, 0, (4,) * 64, True)])
        assert rows.shape == (64, 32) and np.isfinite(rows).all()


class TestRanker:
    def test_gives_one_score_and_knows_how_pairs_are_written(self, tmp_path: Path) -> None:
        path = write_encoder(tmp_path / "ranker.gguf", pooling=gguf.PoolingType.RANK)
        model = Model(path, LoadOptions(gpu_layers=0))
        embedding = LlamaEmbedding(
            model, LoadOptions(context_size=256, threads=1), has_memory=False
        )
        assert (embedding.default_pooling, embedding.can_rank) == ("rank", True)
        pair = embedding.pair("once", "upon a")
        assert pair == (2, 4, 3, 5, 6), "[CLS] query [SEP] document, as llama-server has it"
        context = embedding.open(64, ranks=True)
        [score] = context.compute([Slice(0, 0, pair, True)])
        assert score.shape == (1, 1)
        context.free()
        model.free()


def test_a_model_says_nothing_of_pooling_is_pooled_by_its_mean() -> None:
    model = Model(DEMO, LoadOptions(gpu_layers=0))
    embedding = LlamaEmbedding(model, LoadOptions(context_size=256, threads=1), has_memory=True)
    assert (embedding.default_pooling, embedding.can_rank) == ("mean", False)
    model.free()
