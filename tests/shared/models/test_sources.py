import pytest

from arriero.shared.models.sources import (
    HubFile,
    HubQuantisation,
    LocalFile,
    ModelSource,
    WebFile,
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
        ("https://", "must be a URL"),
        ("https://h:99999/a", "must be a URL"),
        ("https://h/a b", "must be a URL"),
        ("https://h/a\n", "must be a URL"),
        ("https://user:secret@h/a", "without credentials"),
        ("http://example.org/a.gguf", "must begin with https://"),
        ("http://127.0.0.1.example.org/a.gguf", "must begin with https://"),
        ("file://models/a.gguf", "absolute path"),
        ("file:///models/", "absolute path"),
        ("file:///a%00b", "absolute path"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_source(text)


def test_an_error_repeats_no_secret() -> None:
    with pytest.raises(ValueError, match="credentials") as raised:
        parse_source("https://user:secret@h/a")
    assert "secret" not in str(raised.value)
