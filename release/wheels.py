"""The recorded wheels of releases, in `release/wheels`, from which the upgrade test starts.

`python -m release.wheels` records the uploaded wheel from `dist/`. Run it after a release.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from release import changelog

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "release" / "wheels"


def last(root: Path, folder: Path) -> Path:
    """Return the wheel of the last release before the version of `root`.

    Before the second release, no such wheel exists. The wheel is then built into `folder` from the
    last tag, or from `root` if no tag exists. Raises `FileNotFoundError` if the wheel of a release
    was not recorded.
    """
    text = (root / "CHANGELOG.md").read_text()
    released = changelog.before(text, present_version(root))
    if released is not None:
        return recorded(root / "release" / "wheels", released)
    return _built(_source(root, folder), folder)


def present_version(root: Path) -> str:
    """Return the version in `pyproject.toml`."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return version


def recorded(folder: Path, version: str) -> Path:
    """Return the recorded wheel of a version. Raises `FileNotFoundError`."""
    wheel = folder / _name(version)
    if not wheel.is_file():
        raise FileNotFoundError(
            f"{version} is released, and release/wheels has no {wheel.name}: put the wheel that "
            "was uploaded there, by `python -m release.wheels` from a dist/ that has it"
        )
    return wheel


def _name(version: str) -> str:
    return f"arriero-{version}-py3-none-any.whl"


def _source(root: Path, folder: Path) -> Path:
    """Return a folder with the source of the last tag, or `root` if no tag exists."""
    command = ("git", "describe", "--tags", "--abbrev=0", "--match", "v*")
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if said.returncode:
        return root
    archive, source = folder / "tag.tar", folder / "tag"
    source.mkdir()
    tag = said.stdout.strip()
    subprocess.run(("git", "archive", "--output", archive, tag), cwd=root, check=True)
    subprocess.run(("tar", "-xf", archive, "-C", source), check=True)
    return source


def _built(source: Path, folder: Path) -> Path:
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source)
    subprocess.run(command, check=True)
    [wheel] = folder.glob("arriero-*.whl")
    return wheel


def main() -> int:
    """Record the wheel in `dist/` of the version in `pyproject.toml`. Returns the exit code."""
    wheel = ROOT / "dist" / _name(present_version(ROOT))
    if not wheel.is_file():
        print(f"✗ there is no dist/{wheel.name}: run `make release-check`", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    shutil.copy(wheel, FOLDER)
    print(f"✓ recorded: release/wheels/{wheel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
