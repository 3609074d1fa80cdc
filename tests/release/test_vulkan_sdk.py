"""Whether Vulkan's SDK is there: by folders that have parts of it."""

from pathlib import Path

import pytest

from release import engine_wheel
from release.vulkan_sdk import NEEDED, NoSdkError, versions

HEADERS = "include/vulkan/vulkan_core.h"
SPIRV = "share/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake"


def header(number: int, *, is_new: bool = True) -> str:
    lines = (
        f"#define VK_HEADER_VERSION {number}",
        "#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)",
        f"#define {NEEDED} 1" if is_new else "",
    )
    return "\n".join(lines)


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with all of it, and nothing else on the path."""
    monkeypatch.delenv("VULKAN_SDK", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    folder = tmp_path / "usr"
    put(folder, HEADERS, header(280))
    put(folder, SPIRV, "")
    put(folder, "bin/glslc", "#!/bin/sh\necho shaderc 2023.8\necho more\n").chmod(0o755)
    return folder


def test_what_it_is_built_with(system: Path) -> None:
    assert versions((system,)) == "headers 1.3.280, shaderc 2023.8"


@pytest.mark.parametrize(
    ("name", "package"),
    [("bin/glslc", "glslc"), (HEADERS, "libvulkan-dev"), (SPIRV, "spirv-headers")],
)
def test_what_is_missing_is_named(system: Path, name: str, package: str) -> None:
    (system / name).unlink()
    with pytest.raises(NoSdkError, match=f"missing .*{package}"):
        versions((system,))


def test_headers_that_are_too_old(system: Path) -> None:
    path = put(system, HEADERS, header(239, is_new=False))
    with pytest.raises(NoSdkError, match=rf"{path.parent} \(1.3.239\) are too old, .*VULKAN_SDK"):
        versions((system,))


def test_newer_headers_beside_those_of_the_system(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(system, HEADERS, header(239, is_new=False))
    put(tmp_path / "newer", HEADERS, header(309))
    monkeypatch.setenv("VULKAN_SDK", str(tmp_path / "newer"))
    assert versions((system,)).startswith("headers 1.3.309")


def test_a_wheel_has_vulkan_where_the_sdk_is(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_wheel.platform, "system", lambda: "Linux")
    monkeypatch.setattr(engine_wheel, "versions", lambda: versions((system,)))
    backend, why = engine_wheel.chosen(None)
    assert backend == "vulkan"
    assert why == "the engine is built with Vulkan: headers 1.3.280, shaderc 2023.8"
    assert engine_wheel.chosen("cuda")[0] == "cuda"
    (system / "bin/glslc").unlink()
    backend, why = engine_wheel.chosen(None)
    assert backend == "cpu"
    assert why.startswith("the engine is built without Vulkan: glslc is missing (Debian: ")
