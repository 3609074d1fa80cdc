"""The changelog's sections, and how one is cut."""

import pytest

from release import changelog

TEXT = """# Changelog

## [Unreleased]

### Added

- Something.

### Changed

- `GET /v1/a` answers otherwise.

## [0.1.0] - 2026-01-02

### Added

- All of it.
"""


def test_sections_and_parts() -> None:
    unreleased = changelog.section(TEXT, "Unreleased")
    assert changelog.part(unreleased, "Added") == "- Something."
    assert changelog.part(unreleased, "Fixed") == ""
    assert changelog.newest(TEXT) == ("0.1.0", "2026-01-02")
    with pytest.raises(KeyError):
        changelog.section(TEXT, "9.9.9")


def test_a_release_is_cut() -> None:
    text = changelog.cut(TEXT, "0.2.0", "2026-03-04")
    assert changelog.newest(text) == ("0.2.0", "2026-03-04")
    assert changelog.section(text, "Unreleased") == ""
    assert changelog.section(text, "0.2.0") == changelog.section(TEXT, "Unreleased")


def test_nothing_is_no_release() -> None:
    text = changelog.cut(TEXT, "0.2.0", "2026-03-04")
    for version in ("0.3.0", "0.2.0"):
        with pytest.raises(ValueError, match="CHANGELOG"):
            changelog.cut(text, version, "2026-03-05")


def test_what_excuses_a_broken_promise() -> None:
    assert changelog.excuses(TEXT, "GET /v1/a: 200.id is gone")
    assert not changelog.excuses(TEXT, "GET /v1/b: 200.id is gone")
    cut = changelog.cut(TEXT, "0.2.0", "2026-03-04")
    assert changelog.excuses(cut, "GET /v1/a: 200.id is gone")
    later = changelog.cut(
        cut.replace("[Unreleased]", "[Unreleased]\n\n- More.", 1), "0.3.0", "2026-05-06"
    )
    assert not changelog.excuses(later, "GET /v1/a: 200.id is gone")
    assert not changelog.excuses("# Changelog\n", "GET /v1/a: is gone")
