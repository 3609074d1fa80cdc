import pytest

from arriero.shared.models.sources import (
    HubFile,
    HubQuantisation,
    LocalFile,
    ModelSource,
    WebFile,
    check_http,
    http_host,
    parse_source,
)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hf://org/repo/m.gguf", HubFile("org/repo", "m.gguf")),
        ("hf://org/re.po/a/b-Q4.gguf@v1/x", HubFile("org/re.po", "a/b-Q4.gguf", "v1/x")),
        ("hf://org/repo:Q4_K_M", HubQuantisation("org/repo", "Q4_K_M")),
        ("hf://org/repo:Q8_0@abc", HubQuantisation("org/repo", "Q8_0", "abc")),
        ("https://h/a.gguf?x=1", WebFile("https://h/a.gguf?x=1")),
        ("http://127.0.0.1:81/a.gguf", WebFile("http://127.0.0.1:81/a.gguf")),
        ("http://localhost/a", WebFile("http://localhost/a")),
        ("http://files.lan/a", WebFile("http://files.lan/a")),
        ("http://[::1]/a", WebFile("http://[::1]/a")),
        ("file:///models/a%20b.gguf", LocalFile("/models/a b.gguf")),
    ],
)
def test_each_kind(text: str, source: ModelSource) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("m.gguf", "must be a source such as"),
        ("ftp://h/m.gguf", "must be a source such as"),
        ("hf://repo/m.gguf", "hf://org/repo"),
        ("hf://org/repo", "hf://org/repo"),
        ("hf://org/repo/../m.gguf", "hf://org/repo"),
        ("hf://org/repo/a//m.gguf", "hf://org/repo"),
        ("hf://../../m.gguf", "hf://org/repo"),
        ("hf://org/repo//m.gguf", "hf://org/repo"),
        ("hf://org/repo/./m.gguf", "hf://org/repo"),
        ("hf://org/repo/m.gguf@../../x", "hf://org/repo"),
        ("hf://org/repo:Q8_0@/tmp/x", "hf://org/repo"),
        ("hf://org/repo:Q8_0@a/../../x", "hf://org/repo"),
        ("https://", "must be a URL"),
        ("https://h:99999/a", "must be a URL"),
        ("https://h/a b", "must be a URL"),
        ("https://h/a\n", "must be a URL"),
        ("https://user:secret@h/a", "without credentials"),
        ("file://models/a.gguf", "absolute path"),
        ("file:///models/", "absolute path"),
        ("file:///a%00b", "absolute path"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_source(text)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("https://h/a.gguf", ()),
        ("hf://org/repo/m.gguf", ()),
        ("file:///a.gguf", ()),
        ("http://127.0.0.1:81/a.gguf", ()),
        ("http://localhost/a", ()),
        ("http://[::1]/a", ()),
        ("http://Files.lan:8080/a", ("files.lan",)),
        ("http://files.lan:8080/a", ("other.lan", "files.lan:8080")),
        ("http://files.lan/a", ("files.lan:80",)),
        ("http://[fd00::1]:8080/a", ("[fd00::1]",)),
        ("http://[fd00::1]:8080/a", ("[fd00::1]:8080",)),
    ],
)
def test_http_from_loopback_and_from_named_hosts(source: str, allowed: tuple[str, ...]) -> None:
    check_http(source, allowed)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("http://example.org/a.gguf", ()),
        ("http://127.0.0.1.example.org/a.gguf", ()),
        ("http://files.lan:81/a", ("files.lan:80",)),
        ("http://files.lan/a", ("files.lan:8080",)),
        ("http://x.files.lan/a", ("files.lan", "lan")),
        ("http://files.lan.example.org/a", ("files.lan",)),
        ("http://10.0.0.1/a", ("files.lan",)),
        ("http://[fd00::2]/a", ("[fd00::1]",)),
    ],
)
def test_http_from_elsewhere_is_refused_with_the_flag(
    source: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"must begin with https://; .*--model-source-http \S+$"):
        check_http(source, allowed)


def test_hosts_are_compared_in_lower_case() -> None:
    assert http_host("Files.LAN:8080") == "files.lan:8080"
    assert http_host("[FD00::1]") == "[fd00::1]"


@pytest.mark.parametrize("text", ["", "http://files.lan", "files.lan/", "a b", "*", "a:b", "a@b"])
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="must be a host such as"):
        http_host(text)


def test_an_error_repeats_no_secret() -> None:
    with pytest.raises(ValueError, match="credentials") as raised:
        parse_source("https://user:secret@h/a")
    assert "secret" not in str(raised.value)
