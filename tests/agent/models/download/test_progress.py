"""What has arrived of all files together."""

from arriero.agent.models.download.progress import INTERVAL, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_files_of_one_model_add_up() -> None:
    told: list[tuple[str, int, int | None]] = []
    clock = Clock()
    progress = Progress(lambda *one: told.append(one), clock)
    progress.expect(300)
    progress.arrived("a", 50)
    progress.whole(100)
    clock.now += INTERVAL
    progress.arrived("b", 150)

    assert told == [("a", 50, 300), ("b", 250, 300)]


def test_it_is_told_a_few_times_a_second_at_most() -> None:
    told: list[int] = []
    clock = Clock()
    progress = Progress(lambda _file, size, _total: told.append(size), clock)
    for size in range(1000):
        clock.now += INTERVAL / 100
        progress.arrived("a", size)
    assert len(told) in (10, 11)


def test_an_unknown_total_is_the_file_s_own() -> None:
    told: list[int | None] = []
    progress = Progress(lambda _file, _size, total: told.append(total), Clock())
    progress.arrived("a", 1, 70)
    assert told == [70]
