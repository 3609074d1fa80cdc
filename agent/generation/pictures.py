"""Pictures and sounds in messages: a mark represents each while the template renders.

A template may place a message's text anywhere. So the places of media are found by a mark in the
rendered text, which no client can guess. Spans then replace the marks.
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

    `is_result`: the media are in a tool's result, which no user wrote.
    """

    part: MediaPart
    field: str
    is_result: bool = False

    def read(self, reader: MediaReader | None) -> tuple[Span, ...]:
        """Return the spans that replace the media. Raises `RequestError`."""
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
        """The file's bytes. Raises `InvalidRequest`."""
        part = self.part
        text = part.image_url.base64 if isinstance(part, ImagePart) else part.input_audio.data
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._wrong(f"it is not valid base64 ({error})") from error

    @property
    def seconds(self) -> float:
        """The duration in seconds; 0 for a picture. Raises `InvalidRequest`."""
        if isinstance(self.part, ImagePart):
            return 0.0
        try:
            return seconds_of(self.data)
        except UnreadableMediaError as error:
            raise self._wrong(str(error)) from error

    def check_senses(self, reader: MediaReader | None) -> None:
        """Raise `NotSupported` if the model does not accept this kind of media."""
        if not is_taken(self.part, reader):
            raise self.refusal()

    def refusal(self) -> RequestError:
        """Return the error for media that the model does not accept."""
        kind = "pictures" if isinstance(self.part, ImagePart) else "sounds"
        return NotSupported(
            f"`{self.field}`: this model takes no {kind} (it runs without a projector for them)",
            field=self.field,
        )

    def too_long(self) -> RequestError:
        """Return the error for sounds that exceed the allowed total duration."""
        return self._wrong(f"all sounds of a request may play for {MOST_SECONDS} s together")

    def _wrong(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"`{self.field}`: {why}", field=self.field)


@dataclass(frozen=True, slots=True)
class Pictures:
    """A request with marks in place of its pictures and sounds; `marked` maps marks to media."""

    request: GenerateRequest
    marked: dict[str, Picture]
    notices: tuple[Notice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.marked)

    def check(self) -> None:
        """Raise `InvalidRequest` for options that pictures exclude, naming the field."""
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
        """Yield the pieces of a rendered text, split at marks, with pictures for marks."""
        at_marks = re.compile(f"({'|'.join(map(re.escape, self.marked)) or '(?!)'})")
        for piece in pieces:
            for part in at_marks.split(piece):
                yield self.marked.get(part, part)

    def check_shown(self, text: str) -> None:
        """Raise `InvalidRequest` for pictures that the template omits or repeats."""
        for mark, picture in self.marked.items():
            count = text.count(mark)
            if count != 1 and not (count == 0 and picture.is_result):
                verb = "leaves it out" if count == 0 else "repeats it"
                raise InvalidRequest(
                    f"`{picture.field}`: the model's chat template {verb}; put pictures in "
                    "messages of the user",
                    field=picture.field,
                )


def marked(request: GenerateRequest, reader: MediaReader | None, nonce: str) -> Pictures:
    """Return `request` with its pictures replaced by marks; `nonce` is random per call.

    If the model does not accept media in a tool's result, a text replaces it. Raises
    `RequestError`.
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
    """Return whether the model accepts a picture or sound."""
    sense = "vision" if isinstance(part, ImagePart) else "audio"
    return reader is not None and sense in reader.senses


def _unseen(number: int) -> Notice:
    return Notice(
        "results_in_words",
        f"`messages`: this model cannot read {number} pictures or sounds in tool results; "
        "a text in their place says that they exist",
    )


def _check_length(found: Iterable[Picture]) -> None:
    """Raise `InvalidRequest` if all sounds together are too long.

    Decoding takes memory and time for each second.
    """
    left = float(MOST_SECONDS)
    for each in found:
        left -= each.seconds
        if left < 0:
            raise each.too_long()
