"""Positions of cells beside pictures."""

from arriero.agent.engine.llama.cells.places import Places


def test_tokens_after_a_picture_come_as_many_positions_later_as_it_advances() -> None:
    places = Places()
    assert places.position(0, 30) == 30
    places.add(0, 10, 12, 4)
    assert [places.position(0, cell) for cell in (0, 10, 22, 30)] == [0, 10, 14, 22]
    places.add(0, 30, 6, 3)
    assert places.position(0, 36) == 25
    assert places.position(1, 36) == 36, "of another holder"


def test_a_picture_that_is_read_in_parts_is_one() -> None:
    places = Places()
    places.add(0, 10, 12, 4)
    places.add(0, 10, 12, 4)
    assert places.position(0, 22) == 14


def test_pictures_go_with_their_cells() -> None:
    places = Places()
    places.add(0, 10, 12, 4)
    places.add(0, 30, 6, 3)
    places.copy(0, 5, 30)
    assert places.position(5, 40) == 32
    places.cut(0, 22)
    assert places.position(0, 40) == 32
    places.cut(0, 10)
    places.cut(5, 0)
    assert len(places) == 0
    places.add(1, 0, 4, 2)
    places.copy(0, 1, 8)
    assert len(places) == 0, "what it had is replaced"
