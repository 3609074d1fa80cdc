"""What the written pages name is there: links, anchors, and files of the code."""

import re
import tomllib

import pytest

from tests.docs.written_pages import (
    PAGES,
    ROOT,
    broken_code,
    dead_links,
    missing_files,
    named_files,
    prose,
)

CLIENTS = tomllib.loads((ROOT / "client_tests" / "clients.toml").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert not list(dead_links(page, prose(page)))


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    assert not list(missing_files(page, prose(page)))


@pytest.mark.parametrize("page", PAGES)
def test_code_within_a_sentence_is_on_one_line(page: str) -> None:
    assert not broken_code(prose(page))
    assert broken_code("`a`, ``b`c``\nand `--d\n5`, `e`") == ["`--d\n5`"]


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


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_in_the_table_with_the_version_that_is_tested(name: str) -> None:
    [[first, *_]] = CLIENTS[name].values()
    assert is_in_the_table(name, re.split("@|==", first)[-1])


@pytest.mark.parametrize("name", ["openai", "ollama", "langchain-openai"])
def test_so_is_each_library_that_make_test_runs(name: str) -> None:
    [version] = re.findall(rf"^{name}==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert is_in_the_table(name, version)
    assert not is_in_the_table(name, "0")


def is_in_the_table(name: str, version: str) -> bool:
    """Whether docs/clients.md has a row for the client, with this version."""
    rows = [line for line in (ROOT / "docs" / "clients.md").read_text().splitlines() if "|" in line]
    return any(f"| {version} |" in row and name in row.lower().replace(" ", "-") for row in rows)
