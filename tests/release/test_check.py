"""What the check of a release says of container files, and which versions it tries."""

import shutil
import sys
from pathlib import Path

import pytest

from release.check import ROOT, TOOLS, CheckFailed, lint, lowest

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


def test_the_tools_of_the_tests_are_pinned_where_the_rest_is_as_old_as_may_be() -> None:
    first, second, *pins = lowest((ROOT / "constraints.txt").read_text())
    assert (first, second) == ("--resolution", "lowest-direct")
    assert [each.partition("==")[0] for each in pins] == list(TOOLS)
