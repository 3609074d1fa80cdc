"""What models read of documents and search results."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from arriero.balancer.api.anthropic.conversation.documents import (
    Document,
    Readable,
    SearchResult,
    Text,
    ToolReference,
    check_documents,
    paragraphs,
)
from arriero.shared.errors import InvalidRequest

_document = TypeAdapter(Document)
_result = TypeAdapter(SearchResult)


def document(source: dict[str, Any], **about: Any) -> str:
    return _document.validate_json(to_json({"type": "document", "source": source, **about})).read


PDF = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}


def test_pdfs_are_refused_with_what_to_send_instead() -> None:
    pdf = {"type": "document", "source": PDF}
    result = {"type": "tool_result", "content": [{"type": "text", "text": "a"}, pdf]}
    for blocks, field in (([pdf], "here[0].source"), ([{}, result], "here[1].content[1].source")):
        with pytest.raises(
            InvalidRequest, match="PDFs are not supported; send the text"
        ) as refused:
            check_documents(blocks, "here")
        assert refused.value.field == field


@pytest.mark.parametrize("blocks", ["text", None, [5, "a", {"type": "image", "source": PDF}]])
def test_everything_else_is_left_to_the_types(blocks: object) -> None:
    check_documents(blocks, "here")


def test_plain_text() -> None:
    source = {"type": "text", "data": "Once.", "media_type": "text/plain"}
    assert document(source) == "<document>\nOnce.\n</document>"
    assert document(source, title="Tale", context="Old.") == (
        "<document>\n<title>Tale</title>\n<context>Old.</context>\nOnce.\n</document>"
    )


@pytest.mark.parametrize(
    "content", ["a\n\nb", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]]
)
def test_content(content: Any) -> None:
    source = {"type": "content", "content": content}
    assert document(source) == "<document>\na\n\nb\n</document>"


def test_search_results() -> None:
    content = [{"type": "text", "text": "a"}]
    found = {"type": "search_result", "title": "T", "source": "S", "content": content}
    read = "<search_result>\n<title>T</title>\n<source>S</source>\na\n</search_result>"
    assert _result.validate_json(to_json(found)).read == read


def test_only_text_is_read() -> None:
    for source in ({"type": "base64"}, {"type": "text", "data": "", "media_type": "text/html"}):
        with pytest.raises(ValidationError):
            document(source)


def test_blocks_are_paragraphs() -> None:
    blocks: list[Readable] = [
        Text(text="Found:"),
        ToolReference(type="tool_reference", tool_name="f"),
    ]
    assert paragraphs(blocks) == "Found:\n\n<tool_reference>f</tool_reference>"
    assert paragraphs("x") == "x"
    assert paragraphs(None) == ""
