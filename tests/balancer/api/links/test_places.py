"""Links in bodies: which are found, and what takes their place."""

import json
from typing import Any

from hypothesis import given

from arriero.balancer.api.links.filling import MAX_DEPTH, kind_of, links, may_have_links
from tests.balancer.api.json_values import JSON_VALUES

URL = "https://pictures.test/llama.png"
CHAT = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
RESPONSE = {"type": "input_image", "image_url": URL}
MESSAGE = {"type": "image", "source": {"type": "url", "url": URL}}


def copied(value: object) -> Any:
    return json.loads(json.dumps(value))


def test_every_api_has_its_own_way() -> None:
    document = copied(
        {
            "messages": [
                {"role": "user", "content": "https://no.test/picture"},
                {"role": "user", "content": [{"type": "text", "text": "?"}, CHAT]},
                {"role": "user", "content": [{"type": "tool_result", "content": [MESSAGE]}]},
            ],
            "input": [{"content": [RESPONSE]}, {"type": "function_call_output", "output": [CHAT]}],
            "requests": [{"messages": [{"content": [CHAT]}]}],
        }
    )
    found = links(document)
    assert [each.field for each in found] == [
        "requests[0].messages[0].content[0].image_url.url",
        "messages[1].content[1].image_url.url",
        "messages[2].content[0].content[0].source.url",
        "input[0].content[0].image_url",
        "input[1].output[0].image_url.url",
    ]
    assert {each.url for each in found} == {URL}


def test_a_picture_takes_the_place_of_its_link() -> None:
    filled = []
    for part in (CHAT, RESPONSE, MESSAGE):
        document = copied({"messages": [{"content": [part]}]})
        [link] = links(document)
        link.fill("webp", "UklG")
        filled.append(document["messages"][0]["content"][0])
        assert links(document) == []
    data = "data:image/webp;base64,UklG"
    assert filled == [
        {"type": "image_url", "image_url": {"url": data, "detail": "low"}},
        {"type": "input_image", "image_url": data},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/webp", "data": "UklG"},
        },
    ]


def test_what_is_no_part_of_a_message_is_left_alone() -> None:
    call = {"type": "tool_use", "input": CHAT}
    document = {
        "tools": [{"input_schema": {"examples": [CHAT]}}],
        "metadata": {"messages": [CHAT]},
        "messages": [
            {"role": "assistant", "content": [call], "tool_calls": [CHAT]},
            {"content": [{"type": "document", "source": {"type": "url", "url": URL}}]},
            {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]},
            {"content": [{"type": "image_url", "image_url": {"url": "ftp://pictures.test/"}}]},
        ],
    }
    found = [each.field for each in links(copied(document))]
    assert found == []


def test_parts_within_parts_have_an_end() -> None:
    def within(depth: int) -> object:
        return {"content": [within(depth - 1)]} if depth else CHAT

    assert len(links(within(MAX_DEPTH - 1))) == 1
    assert links(within(MAX_DEPTH)) == []


@given(JSON_VALUES)
def test_any_body(value: object) -> None:
    links(value)
    links({"messages": [value, {"content": value}], "input": value})


def test_a_look_at_the_bytes_tells_most_bodies_apart() -> None:
    assert may_have_links(json.dumps(CHAT).encode())
    assert may_have_links(json.dumps(MESSAGE).encode().replace(b"https", b"HTTPS"))
    assert not may_have_links(b'{"messages": [{"content": "see https://a.test"}]}')


def test_what_kind_of_file_it_is() -> None:
    kinds = {
        b"\x89PNG\r\n\x1a\n...": "png",
        b"\xff\xd8\xff\xe0...": "jpeg",
        b"GIF89a": "gif",
        b"RIFF....WEBPVP8 ": "webp",
        b"RIFF....WAVEfmt ": None,
        b"<html>": None,
        b"": None,
    }
    assert {data: kind_of(data) for data in kinds} == kinds
