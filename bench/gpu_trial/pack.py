"""Packs a folder with all that a trial needs: sources of llama.cpp, wheels, this repository."""

import lzma
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from bench.source import PACKAGE, llama_cpp_source, source_folder

ROOT = Path(__file__).parents[2]
LARGEST = 60 * 2**20

_TREE = ("bench", "demo", "integration_tests", "tests", "scripts", "conftest.py", "pyproject.toml")
"""What is run; the packages come as a wheel."""

_SQUEEZED = 2**22
"""Bytes from which on a wheel is compressed anew."""

_EXTRA = ("gguf", "hypothesis", "jsonschema", "openai")
_EXTRA += ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""Besides what an agent needs: for making models, and for tests."""

_UNUSED = ("hf_xet",)
"""Nothing is downloaded over there."""

_GLIBCS = range(5, 40)
"""pip wants each version named of glibc that a wheel may be built for."""

_PARTS = {"CMakeLists.txt", "LICENSE", "cmake", "common", "ggml", "include", "licenses", "src"}
_PARTS |= {"tools", "vendor"}
_BACKENDS = {"ggml-cpu", "ggml-cuda", "ggml-rpc"}
_VOCABULARIES = {"ggml-vocab-qwen2.gguf", "ggml-vocab-llama-spm.gguf"}
_NOT_BUILT = {".mp4", ".mp3", ".wav", ".jpg", ".jpeg", ".png", ".md"}


def pack(folder: Path, python: str) -> None:
    """Fill `folder`, for CPython `python`. Raises `SystemExit` if it is too large."""
    if folder.exists() and not (folder / "gpu-trial").is_file():
        raise SystemExit(f"gpu-trial: {folder} exists and is no pack: name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    source = llama_cpp_source()
    version = source_folder().name.removeprefix("source-")
    (folder / "llama-cpp-python.version").write_text(f"{version}\n")
    with tarfile.open(folder / "llama.cpp.tar.xz", "w:xz") as files:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            if is_built(name := path.relative_to(source)):
                files.add(path, Path("vendor", "llama.cpp", name))
    (folder / "arriero.tar.xz").write_bytes(lzma.compress(_git("archive", "HEAD", *_TREE)))
    (folder / "commit").write_bytes(_git("rev-parse", "HEAD"))
    _python_wheel(source_folder(), version, wheels)
    _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
    [ours] = wheels.glob("arriero-*.whl")
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in _GLIBCS]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    _pip(
        *("download", "--only-binary=:all:", "--dest", str(wheels), "--find-links", str(wheels)),
        *("--python-version", python, "--implementation", "cp"),
        *(word for name in platforms for word in ("--platform", name)),
        *("--constraint", str(ROOT / "constraints.txt"), f"{ours}[agent]", *_EXTRA),
    )
    for name in _UNUSED:
        for path in wheels.glob(f"{name}-*.whl"):
            path.unlink()
    for path in wheels.glob("*.whl"):
        if path.stat().st_size >= _SQUEEZED:
            _squeeze(path)
    shutil.copy(ROOT / "scripts" / "gpu-trial", folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"gpu-trial: {folder} has {size / 2**20:.1f} MiB, for CPython {python} on x86-64")
    if size > LARGEST:
        raise SystemExit(f"gpu-trial: that is more than {LARGEST // 2**20} MiB")


def is_built(name: Path) -> bool:
    """Whether cmake needs that file of llama.cpp's for the CPU, CUDA, RPC and llama-server."""
    first, *_ = name.parts
    if first == "scripts":
        return name.suffix == ".cmake"
    if first == "models":
        return name.name in _VOCABULARIES
    if name.parts[:2] == ("ggml", "src") and len(name.parts) > 3:
        return name.parts[2] in _BACKENDS
    if name.parts[:2] == ("tools", "ui"):
        return len(name.parts) == 3 and name.suffix in (".txt", ".cmake", ".in")
    if first == "tools" and ("tests" in name.parts or name.suffix in _NOT_BUILT):
        return False
    return first in _PARTS


def _python_wheel(source: Path, version: str, wheels: Path) -> None:
    """llama-cpp-python without libraries: a link leads to those that are built."""
    name = f"{PACKAGE.replace('-', '_')}-{version}"
    info = f"{name}.dist-info"
    texts = {f"{info}/METADATA": (source / "PKG-INFO").read_text()}
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    for path in sorted((source / "llama_cpp").rglob("*.py")):
        texts[str(path.relative_to(source))] = path.read_text()
    record = f"{info}/RECORD"
    texts[record] = "".join(f"{each},,\n" for each in [*texts, record])
    with zipfile.ZipFile(wheels / f"{name}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for each, text in texts.items():
            wheel.writestr(each, text)


def _squeeze(wheel: Path) -> None:
    """Compress with LZMA, which pip reads as well, and which saves a quarter."""
    smaller = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(smaller, "w", zipfile.ZIP_LZMA) as new:
        for entry in old.infolist():
            data = old.read(entry)
            entry.compress_type = zipfile.ZIP_LZMA
            new.writestr(entry, data)
    smaller.replace(wheel)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, cwd=ROOT)


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout
