import pytest

from arriero.balancer.fleet.tally import Tally


def test_what_comes_to_nothing_is_gone() -> None:
    tally: Tally[str] = Tally()
    tally.add("a", 2)
    tally.add("b", 1)
    tally.add("a", -1)
    assert ("a" in tally, len(tally)) == (True, 2)
    tally.add("a", -1)
    assert list(tally) == ["b"]
    tally.add("c", 0)
    assert "c" not in tally


def test_fewer_than_none_cannot_be() -> None:
    tally: Tally[str] = Tally()
    tally.add("a", 1)
    with pytest.raises(RuntimeError, match="negative"):
        tally.add("a", -2)
    assert "a" in tally
