import subprocess
import sys
from pathlib import Path

import pytest

from arriero.agent.engine.llama.backends import (
    built,
    cpu_library,
    cpu_variant,
    library,
    unloadable,
)
from tests.waiting import HANGS


def test_the_library_has_a_backend() -> None:
    assert library().ggml_backend_reg_count() > 0
    path = cpu_library()
    assert path is not None
    assert path.name.startswith("libggml-cpu")


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("libggml-cpu-haswell.so", "haswell"),
        ("ggml-cpu-zen4.dll", "zen4"),
        ("libggml-cpu.so", None),
        ("libggml-cpu.dylib", None),
    ],
)
def test_which_processors_a_library_is_for(name: str, variant: str | None) -> None:
    assert cpu_variant(Path("/lib") / name) == variant
    assert cpu_variant(None) is None


def test_backends_that_are_there(tmp_path: Path) -> None:
    for name in ("libggml.so", "libggml-cpu-x64.so", "libggml-cpu-zen4.so", "libggml-cuda.so"):
        (tmp_path / name).touch()
    assert built(tmp_path) == ("cpu", "cuda")
    reasons = unloadable(("cuda", "hip"), tmp_path)
    assert reasons.keys() == {"cuda"}
    assert "file too short" in reasons["cuda"]


NOTHING_LINKED_IN = """
import arriero.agent.engine.llama.backends as backends
backends._num_backends = lambda ggml: 0
backends.library()
"""


def test_a_folder_without_any() -> None:
    """In a process of its own, for which nothing is linked into llama.cpp."""
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_LINKED_IN],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert done.returncode == 1
    assert "runs on this processor" in done.stderr
