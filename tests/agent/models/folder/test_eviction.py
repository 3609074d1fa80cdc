"""Which files make room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.models.folder.eviction import NoRoomError, StoredFile, to_evict


def stored(name: str, size: int, last_used: float, is_used: bool = False) -> StoredFile:
    return StoredFile(name=name, bytes=size, last_used=last_used, is_used=is_used)


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    files = [stored("new", 10, 3), stored("old", 10, 1), stored("middle", 10, 2)]

    assert [file.name for file in to_evict(files, 11)] == ["old", "middle"]
    assert to_evict(files, 0) == []
    assert to_evict(files, -5) == []


def test_what_is_used_stays_however_old() -> None:
    files = [stored("used", 100, 0, is_used=True), stored("free", 10, 5)]

    assert [file.name for file in to_evict(files, 10)] == ["free"]
    with pytest.raises(NoRoomError) as caught:
        to_evict(files, 50)
    assert caught.value.missing == 40


FILES = st.lists(
    st.builds(stored, st.just("f"), st.integers(0, 100), st.floats(0, 100), st.booleans())
)


@given(FILES, st.integers(-10, 500))
def test_what_is_evicted_is_enough_and_unused(files: list[StoredFile], missing: int) -> None:
    try:
        evicted = to_evict(files, missing)
    except NoRoomError as error:
        assert sum(file.bytes for file in files if not file.is_used) == missing - error.missing
        return
    assert sum(file.bytes for file in evicted) >= missing
    assert not any(file.is_used for file in evicted)
    assert not evicted or sum(file.bytes for file in evicted[:-1]) < missing
