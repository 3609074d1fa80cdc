"""The cache of encoded media."""

import numpy as np

from arriero.agent.engine.llama.media.encoded import EncodedCache, EncodedMedia, MediaBatch, Rows


def media(num_rows: int) -> EncodedMedia:
    return EncodedMedia(np.zeros((num_rows, 4), np.float32), num_rows)


def test_the_least_recently_used_go_first() -> None:
    cache = EncodedCache(limit=5 * 16)
    first, second = media(2), media(2)
    cache.put(b"first", first)
    cache.put(b"second", second)
    assert cache.get(b"first") is first
    cache.put(b"third", media(2))
    assert cache.get(b"second") is None
    assert cache.get(b"first") is first
    assert cache.num_bytes == 4 * 16


def test_what_is_larger_than_all_of_it_is_not_cached() -> None:
    cache = EncodedCache(limit=16)
    cache.put(b"one", media(1))
    cache.put(b"large", media(2))
    cache.put(b"one", media(1))
    assert cache.get(b"large") is None
    assert cache.num_bytes == 16


# ---- batches of them


ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
PLAIN = EncodedMedia(ROWS, 6)
GRID = EncodedMedia(
    ROWS,
    3,
    np.array([[0, row, column, 0] for row in range(2) for column in range(3)], np.int32),
    np.tile(np.array([1, 1, 1, 0], np.int32), (6, 1)),
)


def test_rows_follow_each_other() -> None:
    assert Rows(PLAIN, 2, 3, 0, 10).places.tolist() == [[12, 13, 14]]


def test_rows_of_a_grid_begin_where_the_picture_does() -> None:
    places = Rows(GRID, 2, 2, 0, 10).places
    assert places.tolist() == [[10, 10], [10, 11], [12, 10], [0, 0]], "time, row, column, spare"


def test_a_batch_has_the_rows_of_all_runs() -> None:
    batch = MediaBatch([Rows(PLAIN, 4, 2, 3, 0), Rows(PLAIN, 0, 1, 1, 7)])
    raw = batch.raw
    assert raw.n_tokens == 3
    assert [raw.embd[index] for index in range(6)] == [8, 9, 10, 11, 0, 1]
    assert [raw.seq_id[index][0] for index in range(3)] == [3, 3, 1]
    assert not any(raw.logits[index] for index in range(3))
