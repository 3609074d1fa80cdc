"""What a step does."""

from arriero.agent.engine.mixing import Mixing


def test_little_is_read_beside() -> None:
    mixing = Mixing(10)
    assert [mixing.next(3, 7), mixing.next(3, 7), mixing.next(0, 50), mixing.next(50, 0)] == [
        "both"
    ] * 4


def test_much_is_read_in_mixing() -> None:
    mixing = Mixing(10)
    assert [mixing.next(3, 8) for _ in range(4)] == ["read", "generate", "read", "generate"]


def test_streams_do_not_wait_twice_in_a_row() -> None:
    mixing = Mixing(10)
    assert [mixing.next(1, 20), mixing.next(2, 0), mixing.next(2, 20)] == ["read", "both", "read"]


def test_nor_for_what_could_be_read_beside() -> None:
    mixing = Mixing(10)
    assert [mixing.next(3, 20), mixing.next(3, 4), mixing.next(3, 4)] == [
        "read",
        "generate",
        "both",
    ]
