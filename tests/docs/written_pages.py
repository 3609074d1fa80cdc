"""Finds what the written pages name and is not there: links, anchors, files of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = tuple(
    sorted(
        str(path.relative_to(ROOT))
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("demo/*.md"))
    )
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_FILE = re.compile(
    r"(?:agent|balancer|shared|dashboard|docs|demo|bench|tests|integration_tests|client_tests|scripts)/[\w./-]*"
)


def prose(page: str) -> str:
    """The text of `page` without its blocks of code."""
    return _FENCE.sub("", (ROOT / page).read_text())


def dead_links(page: str, text: str) -> Iterator[str]:
    """Relative links in `text`, as `page` has it, whose file or heading is not there."""
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists():
            yield f"{page}: {target} is not there"
        elif fragment and fragment not in map(_anchor, _HEADING.findall(file.read_text())):
            yield f"{page}: {target} has no such heading"


def named_files(text: str) -> list[str]:
    """Paths of the repository that `text` names as code."""
    return [name for name in _CODE.findall(text) if _FILE.fullmatch(name)]


def missing_files(page: str, text: str) -> Iterator[str]:
    """Those of `named_files` that are not there."""
    missing = (name for name in named_files(text) if not (ROOT / name).exists())
    return (f"{page}: `{name}` is not there" for name in missing)


def broken_code(text: str) -> list[str]:
    """Inline code in `text` that goes on in the next line, so that nobody can search for it."""
    return [code for found in _SPAN.finditer(text) if "\n" in (code := found[0])]


def _anchor(heading: str) -> str:
    """The fragment by which GitHub and its kin link a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
