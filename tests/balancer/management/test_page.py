"""The dashboard's files reach the browser, and nothing in them needs a softer policy."""

import posixpath
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient

FOLDER = Path(str(files("arriero.dashboard")))
FILES = {
    file.relative_to(FOLDER).as_posix(): file.read_text()
    for file in FOLDER.rglob("*")
    if file.suffix in (".html", ".js", ".css", ".svg")
}
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))


class Page(HTMLParser):
    """What a page loads, and what in it would be inline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.loaded += [url for name in ("src", "href") if (url := values.get(name))]
        self.inline += [name for name in values if name == "style" or name.startswith("on")]
        self.ids += [value for value in [values.get("id")] if value]
        if tag == "style" or (tag == "script" and "src" not in values):
            self.inline.append(tag)


async def test_the_page_is_served_with_a_strict_policy(client: TestClient) -> None:
    async with client.get("/") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert await response.text() == FILES["index.html"]


async def test_everything_the_page_loads_is_there(client: TestClient) -> None:
    requested = [url for url in Page(FILES["index.html"]).loaded if not url.startswith("#")]
    imported = [
        posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        for name in SCRIPTS
        for path in re.findall(r'from "(\.{1,2}/[^"]+)"', FILES[name])
    ]
    assert len(requested) >= 3
    assert any("/" in name for name in imported), "modules in folders are served as well"
    for url in {*requested, *(f"dashboard/{name}" for name in imported)}:
        async with client.get(f"/{url}") as response:
            assert response.status == 200, url


async def test_types_that_browsers_insist_on(client: TestClient) -> None:
    async with client.get("/dashboard/main.js") as response:
        assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"
    async with client.get("/dashboard/style.css") as response:
        assert response.headers["Content-Type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "name", ["nothing.js", "__init__.py", "..%2f__init__.py", "pages/..%2f__init__.py"]
)
async def test_nothing_else_can_be_reached(client: TestClient, name: str) -> None:
    async with client.get(f"/dashboard/{name}") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"


async def test_what_did_not_change_is_not_sent_again(client: TestClient) -> None:
    async with client.get("/dashboard/main.js") as response:
        tag = response.headers["ETag"]
        assert response.headers["Cache-Control"] == "no-cache"
    async with client.get("/dashboard/main.js", headers={"If-None-Match": tag}) as response:
        assert response.status == 304
        assert await response.read() == b""
    async with client.get("/dashboard/main.js", headers={"If-None-Match": '"old"'}) as response:
        assert response.status == 200


def test_nothing_is_inline() -> None:
    assert Page(FILES["index.html"]).inline == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_never_becomes_markup(name: str) -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", FILES[name]
    )


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_comes_from_elsewhere(name: str) -> None:
    urls = {url.lstrip("\"'(") for url in re.findall(r"(?:https?:|[\"'(])//[\w.]+", FILES[name])}
    assert urls <= {"http://www.w3.org"}, "the namespace of SVG is a name, not an address"


def test_scripts_ask_only_for_elements_that_are_there() -> None:
    ids = Page(FILES["index.html"]).ids
    assert len(ids) == len(set(ids))
    asked = set(re.findall(r'byId\("([^"]+)"\)', "".join(FILES[name] for name in SCRIPTS)))
    assert asked <= set(ids)
