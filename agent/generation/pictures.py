"""Pictures and sounds in messages: a mark stands for each while the template renders.

A template shows a message's text wherever it wants. So the place of media in the rendered text is
found by a mark that no client can know beforehand. Spans take the places of marks.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...shared.errors import InvalidRequest, NotSupported, RequestError
from ...shared.inference import (
    AudioPart,
    ChatMessage,
    GenerateRequest,
    ImagePart,
    MediaPart,
    Notice,
    TextPart,
    in_words,
)
from ..engine.media.audio import MOST_SECONDS, seconds_of
from ..engine.media.reader import MediaReader, UnreadableMediaError
from ..engine.prompt import Span


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture or sound of a request, and the name of its field.

    `is_result`: it is in a tool's result, which no user wrote.
    """

    part: MediaPart
    field: str
    is_result: bool = False

    def read(self, reader: MediaReader | None) -> tuple[Span, ...]:
        """The spans in its place. Raises `RequestError`."""
        if reader is None:
            raise self.refusal()
        data = self.data
        try:
            if isinstance(self.part, AudioPart):
                return reader.read_audio(data)
            return reader.read_image(data)
        except UnreadableMediaError as error:
            raise self._wrong(str(error)) from error

    @property
    def data(self) -> bytes:
        """Its file. Raises `InvalidRequest`."""
        part = self.part
        text = part.image_url.base64 if isinstance(part, ImagePart) else part.input_audio.data
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._wrong(f"it is no valid base64 ({error})") from error

    @property
    def seconds(self) -> float:
        """How long it plays: 0 for a picture. Raises `InvalidRequest`."""
        if isinstance(self.part, ImagePart):
            return 0.0
        try:
            return seconds_of(self.data)
        except UnreadableMediaError as error:
            raise self._wrong(str(error)) from error

    def check_senses(self, reader: MediaReader | None) -> None:
        """Raises `NotSupported` where the model does not take it."""
        if not is_taken(self.part, reader):
            raise self.refusal()

    def refusal(self) -> RequestError:
        """The error where the model does not take it."""
        kind = "pictures" if isinstance(self.part, ImagePart) else "sounds"
        return NotSupported(
            f"`{self.field}`: this model takes no {kind} (it runs without a projector for them)",
            field=self.field,
        )

    def too_long(self) -> RequestError:
        """The error where it and those before it play for too long."""
        return self._wrong(f"all sounds of a request may play for {MOST_SECONDS} s together")

    def _wrong(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"`{self.field}`: {why}", field=self.field)


@dataclass(frozen=True, slots=True)
class Pictures:
    """`request` has marks in place of its pictures."""

    request: GenerateRequest
    marked: dict[str, Picture]
    notices: tuple[Notice, ...] = ()

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
                    f"`{field}` cannot be used with pictures or sounds in `messages`", field=field
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
            count = text.count(mark)
            if count != 1 and not (count == 0 and picture.is_result):
                verb = "leaves it out" if count == 0 else "repeats it"
                raise InvalidRequest(
                    f"`{picture.field}`: the model's chat template {verb}; put pictures into "
                    "messages of the user",
                    field=picture.field,
                )


def marked(request: GenerateRequest, reader: MediaReader | None, nonce: str) -> Pictures:
    """The pictures of `request`; `nonce` is drawn anew for each. Raises `RequestError`.

    If the model does not take what is in a tool's result, a text stands in its place.
    """
    found: dict[str, Picture] = {}
    if not request.has_media:
        return Pictures(request, found)
    num_unseen = 0

    def replaced(place: int, message: ChatMessage) -> ChatMessage:
        numbers = (n for n, part in enumerate(message.parts) if not isinstance(part, TextPart))

        def mark(part: MediaPart) -> str:
            nonlocal num_unseen
            number, is_result = next(numbers), message.role == "tool"
            if is_result and not is_taken(part, reader):
                num_unseen += 1
                return in_words(part)
            member = "image_url.url" if isinstance(part, ImagePart) else "input_audio.data"
            text = f"picture-{nonce}-{len(found)};"
            found[text] = Picture(part, f"messages[{place}].content[{number}].{member}", is_result)
            return text

        return replace(message, content=message.text_with(mark)) if message.media else message

    messages = tuple(replaced(*each) for each in enumerate(request.messages or ()))
    for each in found.values():
        each.check_senses(reader)
    _check_length(found.values())
    notices = (_unseen(num_unseen),) if num_unseen else ()
    pictures = Pictures(replace(request, messages=messages), found, notices)
    pictures.check()
    return pictures


def is_taken(part: MediaPart, reader: MediaReader | None) -> bool:
    """Whether the model takes a picture or sound."""
    sense = "vision" if isinstance(part, ImagePart) else "audio"
    return reader is not None and sense in reader.senses


def _unseen(number: int) -> Notice:
    return Notice(
        "results_in_words",
        f"`messages`: this model does not take {number} pictures or sounds in results of tools; "
        "it is told in words that they are there",
    )


def _check_length(found: Iterable[Picture]) -> None:
    """Decoding sounds takes memory and time for each second."""
    left = float(MOST_SECONDS)
    for each in found:
        left -= each.seconds
        if left < 0:
            raise each.too_long()
