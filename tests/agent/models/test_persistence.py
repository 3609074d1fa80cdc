"""Fetching until the files are here."""

import asyncio
from pathlib import Path

import pytest

from arriero.agent.models.persistence import fetch_until_here
from arriero.agent.models.port import FetchedModel, FetchError, OnProgress
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Download


class NoLease:
    def release(self) -> None:
        """Nothing is leased."""


MODEL = FetchedModel(path=Path("/m"), files=(Path("/m"),), bytes=1, lease=NoLease())
FULL = FetchError("disk_full", "no room", "make some")
AWAY = FetchError("unreachable", "no network")


class ScriptedFiles:
    """Fails with `failures` one after the other, each after some bytes have come or none."""

    def __init__(self, *failures: tuple[FetchError, bool]) -> None:
        self._failures = list(failures)
        self.asked: list[tuple[str, str | None]] = []

    async def fetch(
        self, source: str, *, sha256: str | None = None, on_progress: OnProgress
    ) -> FetchedModel:
        self.asked.append((source, sha256))
        if not self._failures:
            return MODEL
        failure, has_bytes = self._failures.pop(0)
        if has_bytes:
            on_progress(Download(file="m", bytes=1))
        raise failure

    async def room(self) -> int | None:
        return None


class Told:
    def __init__(self) -> None:
        self.issues: list[Issue | None] = []
        self.downloads: list[Download] = []
        self.pauses: list[float] = []

    async def fetch(self, files: ScriptedFiles) -> FetchedModel:
        return await fetch_until_here(
            files,
            "hf://a/b:Q4_0",
            sha256="a" * 64,
            on_progress=self.downloads.append,
            on_issue=self.issues.append,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_issues_are_told_once_and_cleared_when_mended() -> None:
    told, files = Told(), ScriptedFiles((FULL, False), (FULL, False), (AWAY, False))

    assert await told.fetch(files) == MODEL
    assert told.issues == [FULL.issue, AWAY.issue, None]
    assert files.asked == [("hf://a/b:Q4_0", "a" * 64)] * 4
    assert [round(pause / 5) for pause in told.pauses[:1]] == [1]
    assert len(told.pauses) == 3


async def test_an_issue_is_cleared_as_soon_as_bytes_arrive() -> None:
    told = Told()
    await told.fetch(ScriptedFiles((AWAY, False), (AWAY, True)))
    assert told.issues == [AWAY.issue, None, AWAY.issue, None]
    assert told.downloads == [Download(file="m", bytes=1)]


async def test_without_trouble_no_issue_is_told() -> None:
    told = Told()
    await told.fetch(ScriptedFiles())
    assert told.issues == []


async def test_a_newer_wish_cancels_it() -> None:
    class Hanging(ScriptedFiles):
        async def fetch(
            self, source: str, *, sha256: str | None = None, on_progress: OnProgress
        ) -> FetchedModel:
            await asyncio.Event().wait()
            raise AssertionError

    fetching = asyncio.ensure_future(Told().fetch(Hanging()))
    await asyncio.sleep(0)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
