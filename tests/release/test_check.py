"""What the check of a release says of container files."""

import shutil
import sys
from pathlib import Path

import pytest

from release.check import ROOT, CheckFailed, lint

FILES = sorted((ROOT / "deploy" / "container").glob("Containerfile*"))


def test_a_complaint_of_the_linter_ends_the_check(tmp_path: Path) -> None:
    assert lint(FILES)
    bad = Path(shutil.copy(FILES[0], tmp_path))
    bad.write_text(bad.read_text() + "\nRUN sudo true\n")
    with pytest.raises(CheckFailed, match=r"DL3004 error: Do not use sudo"):
        lint([bad])


def test_without_a_linter_nothing_is_linted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert not lint(FILES)
