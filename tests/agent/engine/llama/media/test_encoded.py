"""The cache of encoded media."""

import numpy as np

from arriero.agent.engine.llama.media.encoded import EncodedCache, EncodedMedia


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


def test_what_is_larger_than_all_of_it_is_not_kept() -> None:
    cache = EncodedCache(limit=16)
    cache.put(b"one", media(1))
    cache.put(b"large", media(2))
    cache.put(b"one", media(1))
    assert cache.get(b"large") is None
    assert cache.num_bytes == 16
