"""Reads the sections of CHANGELOG.md, and edits the text for a release."""

import re

UNRELEASED = "Unreleased"

_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.M)
_PART = re.compile(r"^### (\w+)$", re.M)


def section(text: str, name: str) -> str:
    """Return the text under `## [name]`. Raises `KeyError` if there is no such section."""
    sections = list(_SECTION.finditer(text))
    for at, found in enumerate(sections):
        if found[1] == name:
            end = sections[at + 1].start() if at + 1 < len(sections) else len(text)
            return text[found.end() : end].strip()
    raise KeyError(name)


def part(section_text: str, name: str) -> str:
    """Return the text under `### name` of a section; empty if there is none."""
    parts = list(_PART.finditer(section_text))
    for at, found in enumerate(parts):
        if found[1] == name:
            end = parts[at + 1].start() if at + 1 < len(parts) else len(section_text)
            return section_text[found.end() : end].strip()
    return ""


def newest(text: str) -> tuple[str, str | None]:
    """Return the newest released version and its date. The section *Unreleased* is ignored."""
    for found in _SECTION.finditer(text):
        if found[1] != UNRELEASED:
            return found[1], found[2]
    return UNRELEASED, None


def before(text: str, version: str) -> str | None:
    """Return the newest version with a date other than `version`; `None` if there is none."""
    return next(
        (each[1] for each in _SECTION.finditer(text) if each[2] and each[1] != version), None
    )


def cut(text: str, version: str, date: str) -> str:
    """Rename the section *Unreleased* to `version`, and add an empty section *Unreleased* above.

    Raises `ValueError` if *Unreleased* is empty or the section `version` already exists.
    """
    if any(found[1] == version for found in _SECTION.finditer(text)):
        raise ValueError(f"CHANGELOG.md has a section [{version}] already")
    if not section(text, UNRELEASED):
        raise ValueError("CHANGELOG.md has nothing under [Unreleased]")
    return text.replace(f"## [{UNRELEASED}]", f"## [{UNRELEASED}]\n\n## [{version}] - {date}", 1)


def excuses(text: str, change: str) -> bool:
    """Return whether the changelog mentions the method and path of a breaking change.

    The change must be under *Changed* or *Removed*, in *Unreleased* or in the newest version.
    """
    place = f"`{change.partition(':')[0]}`"
    known = {found[1] for found in _SECTION.finditer(text)}
    sections = [section(text, name) for name in {UNRELEASED, newest(text)[0]} & known]
    return any(place in part(each, name) for each in sections for name in ("Changed", "Removed"))
