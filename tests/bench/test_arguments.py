from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from bench.arguments import at_least, model_file
from bench.models import TINY


def test_numbers() -> None:
    assert at_least(1)("1") == 1
    with pytest.raises(ArgumentTypeError, match="at least 2, not 1"):
        at_least(2)("1")
    with pytest.raises(ArgumentTypeError, match="whole number, not '3x'"):
        at_least(1)("3x")


def test_model_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ArgumentTypeError, match=r"bench\.make_model tiny"):
        model_file("tiny")
    with pytest.raises(ArgumentTypeError, match="no file nowhere"):
        model_file("nowhere.gguf")
    made = TINY.path
    assert made.is_relative_to(tmp_path)
    made.parent.mkdir(parents=True)
    made.touch()
    assert model_file("tiny") == made
