"""A key may happen once in a while, and only so many keys are held."""

from arriero.balancer.api.transport.once_per import OncePer


def test_once_in_a_while() -> None:
    once = OncePer(60)
    assert once.allows("a", 0)
    assert not once.allows("a", 59)
    assert once.allows("b", 59)
    assert once.allows("a", 60)
    assert not once.allows("b", 118)
    assert once.allows("b", 119)


def test_new_keys_wait_when_many_are_held() -> None:
    once = OncePer(60, max_keys=2)
    assert [once.allows(key, key) for key in range(4)] == [True, True, False, False]
    assert len(once) == 2
    assert once.allows(2, 60)
    assert len(once) == 2
