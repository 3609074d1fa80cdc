"""What the written pages name is there: links, anchors, and files of the code."""

import pytest

from docs.pages import PAGES, dead_links, missing_files, named_files, prose


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert not list(dead_links(page, prose(page)))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    assert not list(missing_files(page, prose(page)))


def test_what_is_not_there_is_found() -> None:
    assert list(dead_links("README.md", "[a](docs/no.md), [b](docs/api.md#no), [c](#no)")) == [
        "README.md: docs/no.md is not there",
        "README.md: docs/api.md#no has no such heading",
        "README.md: #no has no such heading",
    ]
    assert list(missing_files("README.md", "`agent/no.py`, `docs/api.md`, `agent/engine/`")) == [
        "README.md: `agent/no.py` is not there"
    ]


def test_architecture_tells_the_life_of_a_request_with_the_files_it_passes() -> None:
    assert len(named_files(prose("docs/architecture.md"))) > 40
