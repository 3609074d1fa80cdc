"""Custom ids that are there twice."""

from pathlib import Path

from arriero.balancer.jobs.inputs.custom_ids import CustomIds


def test_the_later_lines_are_found(tmp_path: Path) -> None:
    with CustomIds(tmp_path / "ids") as ids:
        for number in range(1, 5001):
            ids.add(f"r{number % 4990}", number)
        assert ids.repeated(100) == list(range(4991, 5001))
    assert not (tmp_path / "ids").exists()


def test_so_many_are_told(tmp_path: Path) -> None:
    with CustomIds(tmp_path / "ids") as ids:
        for number in range(1000):
            ids.add("same", number)
        assert ids.repeated(3) == [1, 2, 3]


def test_what_an_earlier_check_left_does_not_count(tmp_path: Path) -> None:
    ids = CustomIds(tmp_path / "ids")
    ids.__enter__().add("a", 1)  # and then it was killed
    with CustomIds(tmp_path / "ids") as again:
        again.add("a", 1)
        assert again.repeated(9) == []
    ids.__exit__(None, None, None)
