"""Pictures in messages: a mark stands for each while the template renders, spans take its place.

A template shows a message's text wherever it wants. So the picture's place in the rendered text is
found by a mark that no client can know beforehand.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...shared.errors import InvalidRequest, NotSupported, RequestError
from ...shared.inference import ChatMessage, GenerateRequest, ImagePart, TextPart
from ..engine.media.reader import MediaReader, UnreadableMediaError
from ..engine.prompt import Span


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of a request, and the name of its field."""

    part: ImagePart
    field: str

    def read(self, reader: MediaReader | None) -> tuple[Span, ...]:
        """The spans in its place. Raises `RequestError`."""
        if reader is None:
            raise _blind(self.field)
        try:
            return reader.read_image(base64.b64decode(self.part.image_url.base64, validate=True))
        except UnreadableMediaError as error:
            message = f"`{self.field}`: {error}"
        except binascii.Error as error:
            message = f"`{self.field}`: it is no valid base64 ({error})"
        raise InvalidRequest(message, field=self.field)


@dataclass(frozen=True, slots=True)
class Pictures:
    """`request` has marks in place of its pictures."""

    request: GenerateRequest
    marked: dict[str, Picture]

    def __bool__(self) -> bool:
        return bool(self.marked)

    def check(self) -> None:
        """Refuse what cannot be done with pictures, by name."""
        if not self.marked:
            return
        for field, is_given in (
            ("n_discard", self.request.n_discard is not None),
            ("prompt_logprobs", self.request.prompt_logprobs),
            ("cache_key", self.request.cache_key is not None),
        ):
            if is_given:
                raise InvalidRequest(
                    f"`{field}` cannot be used with pictures in `messages`", field=field
                )

    def split(self, pieces: Iterable[str]) -> Iterator[str | Picture]:
        """The pieces of a rendered text, split at marks, with pictures in place of these."""
        at_marks = re.compile(f"({'|'.join(map(re.escape, self.marked)) or '(?!)'})")
        for piece in pieces:
            for part in at_marks.split(piece):
                yield self.marked.get(part, part)

    def check_shown(self, text: str) -> None:
        """Refuse pictures that the template leaves out or repeats."""
        for mark, picture in self.marked.items():
            if (count := text.count(mark)) != 1:
                verb = "leaves it out" if count == 0 else "repeats it"
                raise InvalidRequest(
                    f"`{picture.field}`: the model's chat template {verb}; put pictures into "
                    "messages of the user",
                    field=picture.field,
                )


def marked(request: GenerateRequest, reader: MediaReader | None, nonce: str) -> Pictures:
    """The pictures of `request`; `nonce` is drawn anew for each. Raises `RequestError`."""
    found: dict[str, Picture] = {}

    def replaced(place: int, message: ChatMessage) -> ChatMessage:
        if not isinstance(message.content, tuple) or not message.images:
            return message
        parts: list[TextPart | ImagePart] = []
        for number, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                mark = f"picture-{nonce}-{len(found)};"
                found[mark] = Picture(part, f"messages[{place}].content[{number}].image_url.url")
                parts.append(TextPart(type="text", text=mark))
            else:
                parts.append(part)
        return replace(message, content=tuple(parts))

    if not request.has_images:
        return Pictures(request, found)
    messages = tuple(replaced(*each) for each in enumerate(request.messages or ()))
    if reader is None:
        raise _blind(next(iter(found.values())).field)
    pictures = Pictures(replace(request, messages=messages), found)
    pictures.check()
    return pictures


def _blind(field: str) -> RequestError:
    return NotSupported(
        f"`{field}`: this model reads text, no pictures (it runs without a projector)", field=field
    )
