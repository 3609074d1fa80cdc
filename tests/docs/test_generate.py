"""The generated pages, and the generated parts of other files, are what the code says now."""

from docs.generate.reference import ROOT, pages


def test_the_pages_are_fresh() -> None:
    stale = [name for name, text in pages().items() if (ROOT / name).read_text() != text]
    assert not stale, f"run `python -m docs.generate`: {', '.join(stale)}"
