import pytest

from arriero.agent.models.port import FetchedModel, OnProgress
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.model_fetch import fetch_model
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assignment, Download, EngineOptions
from tests.agent.supervision.fakes import FakeFiles

SETTINGS = AgentSettings(name="box")
A = Assignment(name="a", source="file:///a.gguf")


async def fetch(files: FakeFiles, assignment: Assignment = A) -> object:
    seen: list[Download] = []
    return await fetch_model(files, SETTINGS, assignment, on_progress=seen.append)


async def test_the_file_and_its_lease() -> None:
    files = FakeFiles()
    outcome = await fetch(files)
    assert isinstance(outcome, tuple)
    file, lease = outcome
    assert file.path == "/a.gguf"
    assert lease is files.leases[A.source]


async def test_why_not() -> None:
    files = FakeFiles()
    files.failures[A.source] = "disk_full"
    outcome = await fetch(files)
    assert isinstance(outcome, Issue)
    assert (outcome.code, outcome.hint) == ("disk_full", "mend it")


async def test_nothing_is_downloaded_for_options_that_cannot_be() -> None:
    files = FakeFiles()
    bad = Assignment(name="a", source=A.source, engine=EngineOptions(kv_cells=16))
    outcome = await fetch(files, bad)
    assert isinstance(outcome, Issue)
    assert outcome.code == "invalid_options"
    assert files.leases == {}


class BrokenFiles(FakeFiles):
    async def fetch(
        self, source: str, *, sha256: str | None = None, on_progress: OnProgress
    ) -> FetchedModel:
        raise IndexError("a mistake of ours")


async def test_a_mistake_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await fetch(BrokenFiles())
    assert isinstance(outcome, Issue)
    assert outcome.code == "fetch_failed"
    assert "IndexError: a mistake of ours" in caplog.text
