"""One writer a key."""

import pytest

from arriero.agent.engine.prompt_store.writers import Writers


def test_a_key_has_one_writer_at_a_time() -> None:
    writers = Writers()
    assert writers.claim("a")
    assert writers.claim("b")
    assert not writers.claim("a")
    writers.release("a")
    assert writers.claim("a")
    assert not writers.claim("b")


def test_only_what_was_claimed_is_released() -> None:
    writers = Writers()
    assert writers.claim("a")
    writers.release("a")
    with pytest.raises(KeyError):
        writers.release("a")
