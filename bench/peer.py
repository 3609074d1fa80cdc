"""Builds llama.cpp's own programs, once for this machine: `python -m bench.peer`.

They are `llama-server`, against which is measured, and `llama-mtmd-cli`, which answers questions
about pictures: a test compares its answers.

They come from the source that our llama-cpp-python carries and with the flags that llama.cpp was
built with there: a release for this very processor, with `CMAKE_ARGS` on top. That takes about ten
minutes on 2 cores.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from bench.source import PACKAGE, llama_cpp_source
from bench.store import cache_folder, has_amx, processor_flags

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)

SERVER, MEDIA_CLIENT = "llama-server", "llama-mtmd-cli"

_FOR_AMX = "-DCMAKE_C_FLAGS=-fno-dse -DCMAKE_CXX_FLAGS=-fno-dse"
"""As `scripts/install` builds the agent's library, and for the same reason."""


def options() -> tuple[str, ...]:
    """CMake's options, the same as the agent's library is built with."""
    default = _FOR_AMX if has_amx() else ""
    return (*OPTIONS, *shlex.split(os.environ.get("CMAKE_ARGS") or default))


def server_path() -> Path:
    """Where the server is, or will be."""
    return _folder() / "bin" / SERVER


def media_client_path() -> Path:
    """Where the program that answers questions about pictures is, or will be."""
    return _folder() / "bin" / MEDIA_CLIENT


def _folder() -> Path:
    """One for each version, processor and set of options."""
    facts = (version(PACKAGE), processor_flags(), *options())
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_folder() / f"peer-{key}"


def built() -> Path:
    """The server. Raises `SystemExit` when it was not built yet."""
    if not (path := server_path()).is_file():
        raise SystemExit(f"bench: there is no {path}: run `make bench-setup` first")
    return path


def server_version() -> str:
    """What the server says of its build."""
    said = subprocess.run([built(), "--version"], capture_output=True, text=True, check=True)
    return " ".join((said.stdout + said.stderr).split())


def build() -> None:
    """Configures and builds; a build that was interrupted goes on where it was."""
    folder = _folder()
    cmake, ninja = _program("cmake"), _program("ninja")
    source = ("-S", str(llama_cpp_source()), "-B", str(folder), "-G", "Ninja")
    subprocess.run([cmake, *source, f"-DCMAKE_MAKE_PROGRAM={ninja}", *options()], check=True)
    subprocess.run([cmake, "--build", str(folder), "--target", SERVER, MEDIA_CLIENT], check=True)


def _program(name: str) -> str:
    """That of this environment; without it, the system's."""
    of_environment = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([of_environment, os.environ["PATH"]]))
    if found is None:
        raise SystemExit(f"bench: there is no {name}: run `make bench-setup`, which installs it")
    return found


def main() -> None:
    programs = (server_path(), media_client_path())
    if not all(path.is_file() for path in programs):
        build()
    print(*programs, sep="\n")


if __name__ == "__main__":
    main()
