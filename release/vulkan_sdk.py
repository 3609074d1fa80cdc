"""Checks whether this system can build llama.cpp's Vulkan backend.

CMake searches the folder in `VULKAN_SDK` first, and then the system's folders.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PACKAGES = "libvulkan-dev glslc spirv-headers"
"""Debian's packages for the build. In Debian 12 the headers are too old (`NEEDED`)."""

NEEDED = "VK_EXT_layer_settings"
"""A Vulkan extension that llama.cpp needs. The headers of Vulkan 1.3.239 lack this extension."""

_SYSTEM = (Path("/usr/local"), Path("/usr"))
_NUMBER = re.compile(r"^#define VK_HEADER_VERSION (\d+)$", re.M)
_COMPLETE = re.compile(r"^#define VK_HEADER_VERSION_COMPLETE \w+\(0, (\d+), (\d+), ", re.M)
_SPIRV = ("share/cmake", "lib/cmake", "lib/*/cmake")


class NoSdkError(Exception):
    """The Vulkan SDK is incomplete. The message says what is missing and how to get it."""


def versions(system: Sequence[Path] = _SYSTEM) -> str:
    """Return the versions of the headers and the shader compiler, in words.

    Raises `NoSdkError`.
    """
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
