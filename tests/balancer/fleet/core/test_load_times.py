import pytest

from arriero.balancer.fleet.core.load_times import LoadTimes
from arriero.balancer.fleet.decisions import LinkId
from arriero.shared.models.assignments import Download, Phase, Work

A = LinkId(1)


def said(phase: Phase, progress: float | None = None, **fields: object) -> Work:
    return Work(revision=1, phase=phase, progress=progress, **fields)  # type: ignore[arg-type]


def after(*reports: tuple[float, Work | None]) -> LoadTimes:
    times = LoadTimes()
    for at, work in reports:
        times.reported(A, work, at)
    return times


def test_the_rest_takes_as_long_as_what_is_done_did() -> None:
    now = said("loading", 0.25)
    assert after((10.0, said("loading", 0.0)), (12.0, now)).seconds_left(A, now, 12.0) == 6.0


def test_one_that_dials_in_the_middle() -> None:
    now = said("loading", 0.6)
    times = after((10.0, said("loading", 0.5)), (12.0, now))
    assert times.seconds_left(A, now, 12.0) == pytest.approx(8.0)


def test_a_download_says_itself_how_long_it_takes() -> None:
    now = said("fetching", 0.5, download=Download(file="f", bytes=1, seconds_left=42.0))
    assert after((10.0, now)).seconds_left(A, now, 11.0) == 42.0


def test_what_has_hardly_begun_is_not_estimated() -> None:
    now = said("loading", 0.01)
    times = after((10.0, said("loading")), (11.0, now))
    assert times.seconds_left(A, now, 11.0) is None
    assert times.seconds_left(LinkId(2), now, 11.0) is None


def test_each_phase_is_measured_by_itself() -> None:
    now = said("loading", 0.5)
    times = after((10.0, said("fetching", 0.0)), (20.0, said("loading", 0.0)), (21.0, now))
    assert times.seconds_left(A, now, 21.0) == 1.0


@pytest.mark.parametrize("end", [said("serving"), said("failed"), None])
def test_an_agent_that_does_not_load_is_forgotten(end: Work | None) -> None:
    times = after((10.0, said("loading", 0.5)), (12.0, end))
    assert len(times) == 0
    assert times.seconds_left(A, end, 13.0) is None


def test_an_agent_that_leaves_is_forgotten() -> None:
    times = after((10.0, said("loading", 0.5)))
    times.left(A)
    assert len(times) == 0
