"""The limit of open files, of which each test sets its own."""

import logging
import resource

import pytest

from arriero.balancer.api.transport.file_limit import SPARE, raise_file_limit


class Limits:
    def __init__(self, soft: int, hard: int) -> None:
        self.values = (soft, hard)

    def getrlimit(self, _which: int) -> tuple[int, int]:
        return self.values

    def setrlimit(self, _which: int, values: tuple[int, int]) -> None:
        self.values = values


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> Limits:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 1_000_000, 8192 + SPARE),
        (1024, resource.RLIM_INFINITY, 8192 + SPARE),
        (1_000_000, 1_000_000, 1_000_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_is_raised_as_far_as_needed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    expected: int,
) -> None:
    limits = limited(monkeypatch, soft, hard)
    assert raise_file_limit(8192) == expected
    assert limits.values == (expected, hard)
    assert not caplog.records


def test_a_limit_that_stays_too_low_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = limited(monkeypatch, 256, 4096)
    with caplog.at_level(logging.WARNING):
        assert raise_file_limit(8192) == 4096
    assert limits.values == (4096, 4096)
    [record] = caplog.records
    assert "the limit of open files is 4096, and 8192 connections need 8256" in record.getMessage()
