from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from bench.harness import at_least, in_turn, model, model_file
from bench.models import DEMO, TINY, Real


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


def test_each_round_begins_with_another_side() -> None:
    turns = [side for _, side in in_turn("abc", 3)]
    assert "".join(turns) == "abcbcacab"


def test_a_model_is_known_by_name_or_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "my.gguf"
    file.touch()
    assert [model(name) for name in ("tiny", "demo", "smollm2", str(file))] == [
        TINY,
        DEMO,
        Real("smollm2"),
        Real(str(file)),
    ]
    with pytest.raises(ArgumentTypeError, match="there is no model"):
        model("nobody")
