"""llama.cpp's source as llama-cpp-python carries it: the very version that the agent runs."""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.store import cache_folder

PACKAGE = "llama-cpp-python"


def source_folder() -> Path:
    """Where the package's source is once it was fetched."""
    return cache_folder() / f"source-{version(PACKAGE)}"


def llama_cpp_source() -> Path:
    """The folder of the source, fetched with pip and unpacked when it is not there yet."""
    release, folder = version(PACKAGE), source_folder()
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        print(f"bench: fetching the source of {PACKAGE} {release}", flush=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            _unpack(_download(release, Path(place))).rename(folder)
    return folder / "vendor" / "llama.cpp"


def _download(release: str, place: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place))
    subprocess.run([*pip, "--no-binary", PACKAGE, f"{PACKAGE}=={release}"], check=True)
    (archive,) = place.glob("*.tar.gz")
    return archive


def _unpack(archive: Path) -> Path:
    with tarfile.open(archive) as files:
        files.extractall(archive.parent, filter="data")
    (folder,) = (path for path in archive.parent.iterdir() if path.is_dir())
    return folder


if __name__ == "__main__":
    print(llama_cpp_source())
