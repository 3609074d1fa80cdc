"""The fetching process' work, without the process; `test_fetcher` starts real ones."""

import io
from pathlib import Path

import pytest

from arriero.agent.models import fetch_process
from arriero.agent.models.fetch_process import MAX_TOLD, MAX_TRACEBACK, carry_out
from arriero.agent.models.fetch_protocol import (
    Fetch,
    Fetched,
    FetchReport,
    Refused,
    decode_fetch_report,
)
from arriero.agent.models.folder.models_folder import ModelsFolder
from arriero.agent.models.port import FetchError
from tests.agent.models.file_server import FileServer, Served, model

DATA = model()


def carried_out(fetch: Fetch, until_leased: object = None) -> list[FetchReport]:
    reports = io.BytesIO()
    carry_out(fetch, reports, until_leased or (lambda: None))  # type: ignore[arg-type]
    return [decode_fetch_report(line) for line in reports.getvalue().splitlines()]


def test_files_stay_leased_until_the_agent_has_its_own(tmp_path: Path, server: FileServer) -> None:
    url = server.serve("/m.gguf", Served(DATA))

    def evict() -> None:
        with pytest.raises(FetchError, match="in use"):
            ModelsFolder(tmp_path, limit=len(DATA)).make_room({tmp_path / "new": 1})

    last = carried_out(Fetch(source=url, root=tmp_path), evict)[-1]
    assert isinstance(last, Fetched)
    assert last.paths[0].read_bytes() == DATA
    assert last.kept == last.paths


def test_a_failure_is_the_last_report(tmp_path: Path) -> None:
    (report,) = carried_out(Fetch(source=f"file://{tmp_path}/no.gguf", root=tmp_path))
    assert isinstance(report, Refused)
    assert (report.code, report.traceback) == ("not_found", "")
    assert report.hint


def test_a_fault_of_ours_has_a_bounded_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("x" * 10 * MAX_TRACEBACK)

    monkeypatch.setattr(fetch_process, "fetched", broken)
    (report,) = carried_out(Fetch(source="file:///m.gguf", root=tmp_path))
    assert isinstance(report, Refused)
    assert report.code == "fetch_failed"
    assert len(report.traceback) == MAX_TRACEBACK
    assert len(report.message) == MAX_TOLD


def test_what_a_server_makes_us_say_is_bounded(tmp_path: Path, server: FileServer) -> None:
    location = "http://host/" + "x" * 10 * MAX_TOLD
    url = server.serve("/m.gguf", Served(location=location))
    (report,) = carried_out(Fetch(source=url, root=tmp_path))
    assert isinstance(report, Refused)
    assert len(report.message) == MAX_TOLD
