from importlib.util import find_spec
from pathlib import Path

import pytest

from arriero.agent import __main__ as program


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"llama_cpp"}, "llama_cpp is"),
        ({"llama_cpp", "llguidance"}, "llama_cpp and llguidance are"),
    ],
)
def test_without_the_engine_it_says_what_to_install(
    missing: set[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        program, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    assert program.main([]) == 1
    assert capfd.readouterr().err == (
        f"agent: {told} not installed: in Arriero's checkout, pip install '.[agent]'\n"
    )


def test_a_certificate_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["--balancer", "wss://127.0.0.1:1", "--tls-ca", str(tmp_path / "none")]
    assert program.main(argv) == 1
    assert capfd.readouterr().err == (
        f"agent: --tls-ca: cannot read {tmp_path}/none: No such file or directory\n"
    )
