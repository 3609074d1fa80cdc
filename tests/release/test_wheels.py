"""Which wheel an upgrade starts from."""

from pathlib import Path

import pytest

from release import changelog, wheels

RELEASED = "## [Unreleased]\n\n## [0.2.0] - 2026-03-04\n\n## [0.1.0] - 2026-01-02\n"


def tree(root: Path, version: str, text: str = RELEASED) -> Path:
    (root / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (root / "CHANGELOG.md").write_text(text)
    (root / "release" / "wheels").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("version", "before"), [("0.3.0", "0.2.0"), ("0.2.0", "0.1.0")], ids=["begun", "cut"]
)
def test_the_last_release_is_taken_from_where_it_is_recorded(
    tmp_path: Path, version: str, before: str
) -> None:
    root = tree(tmp_path, version)
    wheel = root / "release" / "wheels" / f"arriero-{before}-py3-none-any.whl"
    wheel.touch()
    assert wheels.last(root, tmp_path) == wheel


def test_a_release_without_a_recorded_wheel_fails(tmp_path: Path) -> None:
    root = tree(tmp_path, "0.3.0")
    (root / "release" / "wheels" / "arriero-0.1.0-py3-none-any.whl").touch()
    with pytest.raises(FileNotFoundError, match=r"no arriero-0\.2\.0-py3.*release\.wheels"):
        wheels.last(root, tmp_path)


def test_before_the_second_release_there_is_nothing_to_upgrade_from() -> None:
    assert changelog.before("## [Unreleased]\n", "0.1.0") is None
    assert changelog.before("## [Unreleased]\n\n## [0.1.0] - 2026-01-02\n", "0.1.0") is None
