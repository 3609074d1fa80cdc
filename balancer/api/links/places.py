"""Finds links to pictures in the bodies of all APIs, and puts pictures in their place.

| API | a picture |
| --- | --- |
| native, `/v1/chat/completions` | `{"type": "image_url", "image_url": {"url": …}}` |
| `/v1/responses` | `{"type": "input_image", "image_url": …}` |
| `/v1/messages` | `{"type": "image", "source": {"type": "url", "url": …}}` |

Only parts of messages are searched: arguments and results of tools in JSON are no pictures.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["png", "jpeg", "gif", "webp"]

_LEADS_ON = ("requests", "messages", "input", "content", "output", "system")
"""Members in which messages and their parts are."""

MAX_DEPTH = 8
"""Most parts within parts that are searched for links."""

_BEGINNINGS: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """`url` stands at `field` of a body, in the member `key` of `holder`."""

    url: str
    field: str
    holder: dict[str, Any]
    key: str

    def fill(self, kind: Kind, base64: str) -> None:
        """Put a picture in its place, as the API writes those that are sent along."""
        if self.key == "source":
            data = {"type": "base64", "media_type": f"image/{kind}", "data": base64}
            self.holder[self.key] = data
        else:
            self.holder[self.key] = f"data:image/{kind};base64,{base64}"


def may_have_links(body: bytes) -> bool:
    """Whether the body may have links."""
    return b"image" in body and b"http" in body.lower()


def links(document: object) -> list[Link]:
    """The links to pictures in a body that was read as JSON, in their order."""
    return [*_links(document, "", MAX_DEPTH)]


def kind_of(data: bytes) -> Kind | None:
    """The kind of picture that a file is, by its first bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for begin, kind in _BEGINNINGS if data.startswith(begin)), None)


def _links(value: object, prefix: str, depth: int) -> Iterator[Link]:
    """Links in `value`, and in the objects of its lists; `prefix` is how fields in it begin."""
    if not isinstance(value, dict) or not depth:
        return
    if (link := _link(value, prefix)) is not None:
        yield link
    for key in _LEADS_ON:
        if isinstance(inner := value.get(key), list):
            for number, each in enumerate(inner):
                yield from _links(each, f"{prefix}{key}[{number}].", depth - 1)


def _link(part: dict[str, Any], prefix: str) -> Link | None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}} if _leads_out(url):
            return Link(url, f"{prefix}image_url.url", part["image_url"], "url")
        case {"type": "input_image", "image_url": str(url)} if _leads_out(url):
            return Link(url, f"{prefix}image_url", part, "image_url")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return Link(url, f"{prefix}source.url", part, "source")
        case _:
            return None


def _leads_out(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))
