"""The generated pages are what the code says now."""

import pytest

from docs.generate import FOLDER, pages


@pytest.mark.parametrize("name", pages())
def test_a_page_is_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "run `python -m docs.generate`"
