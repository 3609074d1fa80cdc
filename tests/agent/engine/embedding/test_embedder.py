import base64
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.embedding.embedder import (
    LEAST_CHUNK,
    ChunkSize,
    Embedder,
    truncated,
)
from arriero.agent.engine.fair_lock import FairLock
from arriero.agent.engine.withdrawal import Withdrawn, while_wanted
from arriero.shared.queries import (
    Declined,
    Embed,
    Embedded,
    Rank,
    Ranked,
    Result,
    Truncation,
    Vector,
)
from tests.agent.engine.fake_embedding import FakeEmbedding
from tests.agent.fakes import BOS, ByteVocab
from tests.waiting import HANGS


class Bench:
    def __init__(self, model: FakeEmbedding) -> None:
        self.model = model
        self.lock = FairLock()
        self.embedder = Embedder(model, ByteVocab(), self.lock, max_stall=0.5, clock=lambda: 0.0)

    def ask(self, query: Embed | Rank, is_wanted: Callable[[], bool] = lambda: True) -> Result:
        with while_wanted(is_wanted):
            return self.embedder.answer(query)

    def embed(self, query: Embed) -> tuple[Vector, ...]:
        result = self.ask(query)
        assert isinstance(result, Embedded), result
        return result.vectors


@pytest.fixture
def bench() -> Bench:
    return Bench(FakeEmbedding())


def numbers(vector: Vector) -> list[float]:
    return [float(x) for x in np.frombuffer(base64.b64decode(vector.vector), "<f4")]


def raw(*inputs: str | tuple[int, ...], **options: object) -> Embed:
    return Embed(inputs=inputs, **{"normalize": "none", **options})  # type: ignore[arg-type]


class TestEmbed:
    def test_texts_and_tokens_in_their_order(self, bench: Bench) -> None:
        one, two = bench.embed(raw((4, 8), "a"))
        assert numbers(one) == [6, 0.5]
        assert numbers(two) == [(BOS + ord("a")) / 2, 0.5]
        assert (one.num_tokens, two.num_tokens) == (2, 2)

    @pytest.mark.parametrize(
        ("pooling", "expected"), [("mean", [9.5, 9.5]), ("cls", [0, 0]), ("last", [19, 19])]
    )
    def test_an_input_of_many_chunks(
        self, bench: Bench, pooling: str, expected: list[float]
    ) -> None:
        [vector] = bench.embed(raw(tuple(range(20)), pooling=pooling))
        assert numbers(vector) == expected
        assert len(bench.model.context.chunks) == 3

    def test_norms_and_dimensions(self, bench: Bench) -> None:
        [vector] = bench.embed(Embed(inputs=((3, 5),), normalize="l2", dimensions=1))
        assert numbers(vector) == [1]
        declined = bench.ask(Embed(inputs=((3, 5),), dimensions=3))
        assert isinstance(declined, Declined)
        assert declined.error.field == "dimensions"
        assert "vectors have 2, not 3" in declined.error.message

    def test_what_is_wrong_with_an_input_leaves_the_others_alone(self, bench: Bench) -> None:
        vectors = bench.embed(raw((1,), tuple(range(21)), (999,), "x" * 20, (2,)))
        errors = [each.error.code if each.error else None for each in vectors]
        assert errors == [None, "prompt_too_long", "invalid_request", "prompt_too_long", None]
        assert vectors[1].error and "21 tokens > 20 maximum" in vectors[1].error.message
        assert vectors[2].error and "no token 999" in vectors[2].error.message
        assert [numbers(vectors[0]), numbers(vectors[4])] == [[1, 0], [2, 0]]

    @pytest.mark.parametrize(
        ("truncation", "mean", "num_read", "num_cut"),
        [
            (Truncation(keeps="first"), 9.5, 20, 10),
            (Truncation(keeps="last"), 19.5, 20, 10),
            (Truncation(keeps="first", most=2), 0.5, 2, 28),
            (Truncation(keeps="last", most=99), 19.5, 20, 10),
        ],
    )
    def test_what_is_too_long_is_cut_where_that_is_asked_for(
        self, bench: Bench, truncation: Truncation, mean: float, num_read: int, num_cut: int
    ) -> None:
        short, long = bench.embed(raw((1,), tuple(range(30)), truncation=truncation))
        assert (short.num_tokens, short.num_cut) == (1, 0)
        assert (numbers(long)[0], long.num_tokens, long.num_cut) == (mean, num_read, num_cut)

    def test_what_is_around_every_text_stays(self, bench: Bench) -> None:
        [vector] = bench.embed(raw("x" * 30, truncation=Truncation(keeps="last", most=3)))
        assert numbers(vector)[0] == pytest.approx((BOS + 2 * ord("x")) / 3)
        assert vector.num_cut == 28

    def test_a_pooling_that_the_model_lacks(self, bench: Bench) -> None:
        declined = bench.ask(Embed(inputs=("a",), pooling="rank"))
        assert isinstance(declined, Declined)
        assert (declined.error.code, declined.error.field) == ("invalid_request", "pooling")

    def test_an_input_that_has_to_be_seen_whole(self) -> None:
        bench = Bench(FakeEmbedding("last", splits=False))
        [vector] = bench.embed(raw(tuple(range(10))))
        assert numbers(vector) == [9, 9]
        assert [len(chunk) for chunk in bench.model.context.chunks] == [1]


class TestContexts:
    def test_one_embeds_with_all_poolings(self, bench: Bench) -> None:
        for pooling in (None, "mean", "last", "cls", "mean"):
            bench.embed(raw((1,), pooling=pooling))
        assert len(bench.model.opened) == 1
        bench.embedder.free()
        assert bench.model.context.is_free
        assert bench.embedder.num_cells == 0

    def test_a_document_is_read_up_to_so_many_tokens(self) -> None:
        bench = Bench(FakeEmbedding("rank"))
        whole, cut = (
            bench.ask(Rank(query="q", documents=("abcdef",), max_document_tokens=most))
            for most in (9, 2)
        )
        assert isinstance(whole, Ranked) and isinstance(cut, Ranked)
        assert [each.scores[0].num_tokens for each in (whole, cut)] == [8, 4]

    def test_one_ranks_beside_it(self) -> None:
        bench = Bench(FakeEmbedding("rank"))
        for _ in range(2):
            bench.embed(raw((1,), pooling="mean"))
            bench.ask(Rank(query="q", documents=("a",)))
        assert [context.ranks for context in bench.model.opened] == [False, True]
        assert bench.embedder.num_cells == sum(each.num_cells for each in bench.model.opened)
        bench.embedder.free()
        assert all(context.is_free for context in bench.model.opened)

    def test_it_is_as_large_as_the_longest_input_so_far_needs(self) -> None:
        bench = Bench(FakeEmbedding(max_tokens=3000))
        for length in (1, 512, 513, 10, 1024):
            bench.embed(raw((1,) * length))
        assert [each.num_cells for each in bench.model.opened] == [512 + 8, 1024 + 8]
        assert [each.is_free for each in bench.model.opened] == [True, False]
        bench.embed(raw((1,) * 3000))
        assert bench.embedder.num_cells == 3000 + 8, "and no larger than any input may be"

    def test_opening_one_takes_no_turn(self, bench: Bench) -> None:
        is_opening = threading.Event()
        bench.model.on_open = is_opening.set
        thread = threading.Thread(target=bench.embed, args=(raw((1,)),))
        with bench.lock:  # as a step does
            thread.start()
            assert is_opening.wait(5.0), "a step that takes long holds up no opening, nor it steps"
        thread.join(HANGS)
        assert not thread.is_alive()

    def test_changes_of_its_cells_are_reported(self) -> None:
        model, told = FakeEmbedding(), []
        embedder = Embedder(
            model,
            ByteVocab(),
            FairLock(),
            max_stall=0.5,
            on_change=lambda: told.append(embedder.num_cells),
        )
        for _ in range(2):
            embedder.answer(raw((1,)))
        assert told == [20 + 8]

    def test_a_batch_that_fails_is_the_calls_error_and_leaves_nothing_behind(
        self, bench: Bench
    ) -> None:
        bench.embed(raw((1,)))
        bench.model.context.fails_at = 2
        declined = bench.ask(raw(tuple(range(20))))
        assert isinstance(declined, Declined) and declined.error.code == "engine_failed"
        assert bench.model.context.num_cleared == 1
        bench.model.context.fails_at = None
        assert numbers(bench.embed(raw((7,)))[0]) == [7, 0]

    def test_a_withdrawn_call_stops_between_chunks(self, bench: Bench) -> None:
        answers = iter([True, False])
        with pytest.raises(Withdrawn):
            bench.ask(raw(tuple(range(20))), lambda: next(answers))
        assert len(bench.model.context.chunks) == 1
        assert bench.model.context.num_cleared == 1

    def test_an_engine_that_stopped_answers_nothing(self, bench: Bench) -> None:
        bench.embed(raw((1,)))
        bench.lock.close()
        declined = bench.ask(raw((1,)))
        assert isinstance(declined, Declined) and declined.error.code == "engine_failed"
        bench.embedder.free()
        assert not bench.model.context.is_free, "the weights are gone, and the context with them"


class TestRank:
    def test_documents_with_the_query(self) -> None:
        bench = Bench(FakeEmbedding("rank"))
        result = bench.ask(Rank(query="q", documents=("a", "b", "x" * 20)))
        assert isinstance(result, Ranked)
        first, second, third = result.scores
        assert second.score == first.score + 1
        assert first.num_tokens == 3
        assert third.error is not None and third.error.code == "prompt_too_long"

    def test_a_ranking_is_no_vector_to_be_normalised(self) -> None:
        bench = Bench(FakeEmbedding("rank"))
        [vector] = bench.embed(Embed(inputs=((3, 5),), normalize="l2"))
        assert numbers(vector) == [8, 1]

    def test_a_model_that_does_not_rank(self, bench: Bench) -> None:
        declined = bench.ask(Rank(query="q", documents=("a",)))
        assert isinstance(declined, Declined) and declined.error.field == "model"

    def test_a_score_that_is_no_number(self) -> None:
        bench = Bench(FakeEmbedding("rank"))
        bench.ask(Rank(query="q", documents=("a",)))
        bench.model.context.compute = lambda slices: [np.array([[np.nan]], np.float32)]  # type: ignore[method-assign]
        declined = bench.ask(Rank(query="q", documents=("a",)))
        assert isinstance(declined, Declined) and declined.error.code == "engine_failed"


# ---- the size of a chunk


def test_the_first_chunk_is_small() -> None:
    assert ChunkSize(0.25, 512).num_tokens == LEAST_CHUNK
    assert ChunkSize(0.25, 4).num_tokens == 4


def test_chunks_become_as_large_as_the_time_allows() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.016)  # 1 ms a token
    assert size.num_tokens == 250


def test_a_slow_machine_gets_the_least() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 16.0)
    assert size.num_tokens == LEAST_CHUNK


def test_a_fast_one_gets_the_most() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.0)
    assert size.num_tokens == 512


def test_what_has_changed_is_followed() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.016)
    for _ in range(30):
        size.observe(100, 1.0)  # 10 ms a token now
    assert 25 <= size.num_tokens <= 26


@given(
    st.integers(1, 2048),
    st.lists(st.tuples(st.integers(1, 512), st.floats(0, 100)), max_size=20),
)
def test_it_is_always_possible(most: int, seen: list[tuple[int, float]]) -> None:
    size = ChunkSize(0.25, most)
    for num_tokens, seconds in seen:
        size.observe(num_tokens, seconds)
        assert 1 <= size.num_tokens <= most


class TestTruncated:
    """A text's tokens, with 1 before and 2 behind every text."""

    TEXT = (1, 11, 12, 13, 14, 2)

    @pytest.mark.parametrize(
        ("most", "first", "last"),
        [
            (5, (1, 11, 12, 13, 2), (1, 12, 13, 14, 2)),
            (3, (1, 11, 2), (1, 14, 2)),
            (2, (1, 2), (1, 2)),
            (1, (1,), (1,)),
        ],
    )
    def test_it_keeps_its_ends(
        self, most: int, first: tuple[int, ...], last: tuple[int, ...]
    ) -> None:
        assert truncated(self.TEXT, (1, 2), most, "first") == first
        assert truncated(self.TEXT, (1, 2), most, "last") == last

    def test_what_stands_behind_alone(self) -> None:
        assert truncated((11, 12, 13, 2), (2,), 2, "first") == (11, 2)
        assert truncated((11, 12, 13), (), 2, "last") == (12, 13)
