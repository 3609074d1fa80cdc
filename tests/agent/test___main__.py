from importlib.util import find_spec

import pytest

from arriero.agent import __main__ as program


def test_without_the_engine_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        program, "find_spec", lambda name: None if name == "llama_cpp" else find_spec(name)
    )
    assert program.main([]) == 1
    assert capfd.readouterr().err == (
        "agent: llama_cpp is not installed: pip install 'arriero[agent]'\n"
    )
