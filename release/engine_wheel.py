"""Builds llama-cpp-python for hosts without a compiler: `python -m release.engine_wheel`.

In this build each llama.cpp backend is a separate library. The CPU backend is built once for each
kind of processor, and an agent loads the best one for its host. The Vulkan backend is included if
its SDK is installed, unless `--backend` names another backend.

The build needs a compiler, and for `--backend` the toolkit of these GPUs. This program imports
only Python's standard library, so it runs in containers before any package is installed.
"""

import argparse
import base64
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from release.vulkan_sdk import NoSdkError, versions

ROOT = Path(__file__).parent.parent

_SWITCHES = "-fno-dse -frecord-gcc-switches"
"""Without these flags gcc breaks the kernels for AMX.

The libraries record the flags, so agents can check them.
"""

_LIBRARIES = (
    "-DGGML_NATIVE=off",
    "-DGGML_BACKEND_DL=on",
    "-DGGML_CPU_ALL_VARIANTS=on",
    "-DGGML_RPC=on",
    "-DLLAMA_OPENSSL=off",
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib",
    "-DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
)
_LINUX = (
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    f"-DCMAKE_C_FLAGS={_SWITCHES}",
    f"-DCMAKE_CXX_FLAGS={_SWITCHES}",
)


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend.

    `build` is the build tag of its wheels; `of_driver` are libraries not to bundle.
    """

    build: str
    arguments: tuple[str, ...] = ()
    of_driver: tuple[str, ...] = ()


BACKENDS = {
    "cpu": Backend("1cpu"),
    "vulkan": Backend("1vulkan", ("-DGGML_VULKAN=on",), ("libvulkan.so.*",)),
    "cuda": Backend(
        "1cuda",
        ("-DGGML_CUDA=on",),
        ("libcuda.so.*", "libcudart.so.*", "libcublas.so.*", "libcublasLt.so.*"),
    ),
    "rocm": Backend(
        "1rocm", ("-DGGML_HIP=on",), ("libamdhip64.so.*", "libhipblas.so.*", "librocblas.so.*")
    ),
    "metal": Backend("1metal", ("-DGGML_METAL=on", "-DGGML_METAL_EMBED_LIBRARY=on")),
}

_UNUSED = re.compile(
    r"(include|lib|bin)/.*|llama_cpp/include/.*|llama_cpp/lib/(cmake|pkgconfig)/.*"
    r"|llama_cpp/lib/libllama-common\..*|.*\.so\.\d+\.\d+\.\d+"
)
"""Files that no program loads: headers, extra copies of libraries, and files for linkers."""


def main() -> None:
    """Build one wheel, and print its path."""
    parser = argparse.ArgumentParser(prog="python -m release.engine_wheel", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, help="else vulkan if its SDK is there")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder (default dist)")
    parser.add_argument(
        "--this-system",
        action="store_true",
        help="for systems like this one: needs no auditwheel and bundles nothing",
    )
    arguments = parser.parse_args()
    backend, why = chosen(arguments.backend)
    print(why, file=sys.stderr)
    wheel = built(backend, arguments.output, is_portable=not arguments.this_system)
    print(wheel)


def chosen(backend: str | None) -> tuple[str, str]:
    """Return the backend to build, and a line that says why.

    Returns `backend` if it is given. Otherwise returns the backend that suits most hosts and that
    this system can build.
    """
    if backend is not None or platform.system() != "Linux":
        return backend or "cpu", f"the engine is built for {backend or 'cpu'}"
    try:
        return "vulkan", f"the engine is built with Vulkan: {versions()}"
    except NoSdkError as error:
        return "cpu", f"the engine is built without Vulkan: {error}"


def built(name: str, output: Path, *, is_portable: bool = True) -> Path:
    """Build the wheel of the backend `name`. Returns its path in `output`.

    Raises `CalledProcessError` if a program fails, and `NoSdkError` if Vulkan's SDK is missing.
    """
    backend = BACKENDS[name]
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        slim = slimmed(_compiled(backend), Path(folder), backend.build)
        if not is_portable or platform.system() != "Linux":
            return Path(shutil.copy(slim, output))
        excluded = [word for each in backend.of_driver for word in ("--exclude", each)]
        repaired = Path(folder) / "repaired"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", str(repaired), slim],
            check=True,
            env=os.environ | {"PATH": path},  # it runs patchelf
        )
        [wheel] = repaired.iterdir()
        return Path(shutil.copy(wheel, output))


def cmake_arguments(backend: Backend, system: str) -> str:
    """Return the value of `CMAKE_ARGS`.

    Arguments of the existing value come last and have priority.
    """
    if system == "Darwin":
        arguments: tuple[str, ...] = ("-DGGML_NATIVE=off", "-DGGML_RPC=on")
    else:
        arguments = (*_LIBRARIES, *(_LINUX if system == "Linux" else ()))
    own = os.environ.get("CMAKE_ARGS", "")
    return " ".join([*map(shlex.quote, (*arguments, *backend.arguments)), own]).strip()


def version() -> str:
    """Return the pinned version of llama-cpp-python."""
    found = re.search(r"^llama_cpp_python==(\S+)$", _constraints(), re.MULTILINE)
    if found is None:
        raise ValueError("constraints.txt does not pin llama_cpp_python")
    return found[1]


def _constraints() -> str:
    return (ROOT / "constraints.txt").read_text()


def _compiled(backend: Backend) -> Path:
    """Return the wheel as built by pip, which takes long.

    The wheel is cached for the same version, arguments, system and compiler.
    """
    arguments = cmake_arguments(backend, platform.system())
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True)
    kit = [versions()] if backend is BACKENDS["vulkan"] else []
    shape = "\n".join([version(), arguments, platform.platform(), compiler.stdout, *kit])
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = base / "arriero" / "portable" / hashlib.sha256(shape.encode()).hexdigest()[:16]
    if not (found := list(kept.glob("*.whl"))):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            # pip's cache gives back what was built before, whatever CMAKE_ARGS are.
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "wheel", "--no-cache-dir", "--no-deps"),
                    *("--quiet", "-w", folder, f"llama-cpp-python=={version()}"),
                ],
                check=True,
                env=os.environ | {"CMAKE_ARGS": arguments},
            )
            shutil.copytree(folder, kept)
        found = list(kept.glob("*.whl"))
    return found[0]


def slimmed(wheel: Path, folder: Path, build: str) -> Path:
    """Write a copy of the wheel without unused files to `folder`. `build` is its build tag."""
    name, number, *tags = wheel.name.split("-")
    slim = folder / "-".join([name, number, build, *tags])
    lines = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(slim, "w") as target:
        record = next(each for each in source.namelist() if each.endswith(".dist-info/RECORD"))
        for entry in source.infolist():
            if entry.is_dir() or entry.filename == record or _UNUSED.fullmatch(entry.filename):
                continue
            data = source.read(entry)
            if entry.filename.endswith(".dist-info/WHEEL"):
                data = data.rstrip() + f"\nBuild: {build}\n".encode()
            target.writestr(entry, data, zipfile.ZIP_DEFLATED)
            lines.append(_recorded(entry.filename, data))
        target.writestr(record, "".join([*lines, f"{record},,\n"]), zipfile.ZIP_DEFLATED)
    return slim


def _recorded(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


if __name__ == "__main__":
    main()
