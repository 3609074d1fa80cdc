"""Whether this system has what llama.cpp's Vulkan backend is built with.

CMake looks where `VULKAN_SDK` says, and then where the system has its own.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PACKAGES = "libvulkan-dev glslc spirv-headers"
"""Debian's, of which those of version 12 are too old in one point: see `NEEDED`."""

NEEDED = "VK_EXT_layer_settings"
"""What llama.cpp uses and headers may be too old for: those of Vulkan 1.3.239 are."""

_SYSTEM = (Path("/usr/local"), Path("/usr"))
_NUMBER = re.compile(r"^#define VK_HEADER_VERSION (\d+)$", re.M)
_COMPLETE = re.compile(r"^#define VK_HEADER_VERSION_COMPLETE \w+\(0, (\d+), (\d+), ", re.M)
_SPIRV = ("share/cmake", "lib/cmake", "lib/*/cmake")


class NoSdkError(Exception):
    """What is missing, as the end of a sentence, and what would be right."""


def versions(system: Sequence[Path] = _SYSTEM) -> str:
    """Those of the headers and of the compiler of shaders, in words. Raises `NoSdkError`."""
    prefixes = [*_named(), *system]
    path = os.pathsep.join([*(str(each / "bin") for each in prefixes), os.environ["PATH"]])
    glslc = shutil.which("glslc", path=path)
    if glslc is None:
        raise NoSdkError(f"glslc is missing (Debian: {PACKAGES})")
    headers = _headers(prefixes)
    if not any(_has_spirv(each) for each in prefixes):
        raise NoSdkError("the headers of SPIR-V are missing (Debian: spirv-headers)")
    return f"headers {headers}, {_compiler(glslc)}"


def _named() -> list[Path]:
    folder = os.environ.get("VULKAN_SDK")
    return [Path(folder)] if folder else []


def _headers(prefixes: Sequence[Path]) -> str:
    found = (each / "include" / "vulkan" / "vulkan_core.h" for each in prefixes)
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        raise NoSdkError("the headers of Vulkan are missing (Debian: libvulkan-dev)")
    text = path.read_text()
    number, complete = _NUMBER.search(text), _COMPLETE.search(text)
    version = ".".join([*(complete.groups() if complete else ()), number[1] if number else "?"])
    if NEEDED not in text:
        raise NoSdkError(
            f"the headers in {path.parent} ({version}) are too old, without {NEEDED}; set "
            "VULKAN_SDK to a folder with newer ones in include/"
        )
    return version


def _has_spirv(prefix: Path) -> bool:
    name = "SPIRV-Headers/SPIRV-HeadersConfig.cmake"
    return any(any(prefix.glob(f"{folder}/{name}")) for folder in _SPIRV)


def _compiler(glslc: str) -> str:
    said = subprocess.run([glslc, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]
