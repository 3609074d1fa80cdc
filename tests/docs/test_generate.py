"""The generated pages are what the code says now."""

from docs.generate import FOLDER, pages


def test_the_pages_are_fresh() -> None:
    stale = [name for name, text in pages().items() if (FOLDER / name).read_text() != text]
    assert not stale, "run `python -m docs.generate`"
