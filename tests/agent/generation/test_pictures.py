"""Pictures and sounds in messages become spans in the places of their marks."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.engine.media.audio import MOST_SECONDS
from arriero.agent.engine.media.reader import UnreadableMediaError
from arriero.agent.engine.prompt import Media, Prompt, Span
from arriero.agent.engine.withdrawal import Withdrawn, while_wanted
from arriero.agent.generation.preparer import Preparer
from arriero.shared.errors import InvalidRequest, NotSupported, PromptTooLong, RequestError
from arriero.shared.inference import (
    AudioPart,
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    InputAudio,
    MediaPart,
    TextPart,
)
from arriero.shared.inference.request import Sense
from tests.agent.engine.llama.projectors import wav
from tests.agent.fakes import byte_model
from tests.agent.generation.outputs import ONE

TEMPLATE = "{% for m in messages %}{{ m.content }}|{% endfor %}"
USER_ONLY = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
TWICE = "{{ messages[0].content }}{{ messages[0].content }}"


class FakeReader:
    """A picture takes as many positions as its file has bytes, between two tokens."""

    identity = "fake"

    def __init__(self, *senses: Sense) -> None:
        self.senses = senses

    num_cached_bytes = 0

    def read_image(self, data: bytes) -> tuple[Span, ...]:
        if data == b"bad":
            raise UnreadableMediaError("this is no picture")
        return ((1,), Media(data, len(data)), (2,))

    def read_audio(self, data: bytes) -> tuple[Span, ...]:
        return ((3,), Media(data, 5))


def make(
    template: str = TEMPLATE, *, sees: bool = True, hears: bool = True, context_size: int = 64
) -> Preparer:
    model = byte_model(template, adds_bos=False)
    senses: tuple[Sense, ...] = ("vision", "audio") if hears else ("vision",)
    reader = FakeReader(*senses) if sees else None
    return Preparer(replace(model, media=reader), context_size)


def image(data: bytes) -> ImagePart:
    return image_of(base64.b64encode(data).decode())


def image_of(text: str) -> ImagePart:
    return ImagePart(type="image_url", image_url=ImageUrl(url=f"data:image/png;base64,{text}"))


def sound(data: bytes) -> AudioPart:
    audio = InputAudio(data=base64.b64encode(data).decode(), format="wav")
    return AudioPart(type="input_audio", input_audio=audio)


def says(*parts: str | MediaPart, role: Any = "user") -> ChatMessage:
    content = tuple(
        TextPart(type="text", text=part) if isinstance(part, str) else part for part in parts
    )
    return ChatMessage(role=role, content=content)


def refused(preparer: Preparer, *messages: ChatMessage, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        preparer.prepare(ONE, GenerateRequest(messages=messages, **fields))
    return caught.value


def ids(text: str) -> tuple[int, ...]:
    return make().prepare(ONE, GenerateRequest(prompt=text)).sequence.prompt.tokens


def test_pictures_stand_where_they_were_sent() -> None:
    request = GenerateRequest(
        messages=(says("a", image(b"cat"), "b"), says(image(b"horse"))), max_tokens=4
    )
    expected = Prompt(
        (*ids("a"), 1), Media(b"cat", 3), (2, *ids("b|"), 1), Media(b"horse", 5), (2, *ids("|"))
    )
    assert make().prepare(ONE, request).sequence.prompt == expected
    assert make().num_tokens(request) == len(expected)


def test_text_that_looks_like_a_mark_is_text() -> None:
    request = GenerateRequest(messages=(says("picture-0-0;", image(b"cat")),))
    assert make().prepare(ONE, request).sequence.prompt.media == (Media(b"cat", 3),)


def test_a_model_without_a_projector_reads_none() -> None:
    error = refused(make(sees=False), says("a", image(b"cat")))
    assert isinstance(error, NotSupported)
    assert "`messages[0].content[1].image_url.url`: this model takes no pictures" in error.message


CALLS = "{% for call in m.tool_calls %}{{ call.function | tojson }}{% endfor %}"
RESULTS = f"{{% for m in messages %}}{CALLS}{{{{ m.content }}}}|{{% endfor %}}"


def results(*parts: str | MediaPart) -> GenerateRequest:
    """A conversation with a result of a tool, which no user wrote."""
    call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return GenerateRequest(
        messages=(
            says("go"),
            ChatMessage(role="assistant", tool_calls=(call,)),
            replace(says(*parts, role="tool"), tool_call_id="call00001"),
        )
    )


def test_a_picture_in_a_result_is_words_for_a_model_that_takes_none() -> None:
    request = results("a", image(b"cat"), sound(b"miaow"), "b")
    prepared = make(RESULTS, sees=False, context_size=512).prepare(ONE, request)
    text = bytes(prepared.sequence.prompt.tokens).decode()
    assert "a[a picture that this model cannot take][a sound that this model cannot take]b|" in text
    [notice] = [each for each in prepared.notices if each.code == "results_in_words"]
    assert "cannot read 2 pictures or sounds" in notice.message


def test_a_picture_in_a_result_is_read_by_a_model_that_takes_it() -> None:
    prepared = make(RESULTS, hears=False, context_size=512).prepare(ONE, results(image(b"cat")))
    assert prepared.sequence.prompt.media == (Media(b"cat", 3),)
    assert not prepared.notices


def test_a_picture_in_a_result_that_the_template_leaves_out_is_left_out() -> None:
    source = RESULTS.replace("in messages", "in messages if m.role != 'tool'")
    prepared = make(source, context_size=512).prepare(ONE, results(image(b"cat")))
    assert not prepared.sequence.prompt.media


def test_a_model_without_ears_hears_nothing() -> None:
    error = refused(make(hears=False), says("a", image(b"cat"), sound(wav(0.1))))
    assert isinstance(error, NotSupported)
    assert error.field == "messages[0].content[2].input_audio.data"


def test_sounds_stand_where_they_were_sent() -> None:
    data = wav(0.1)
    request = GenerateRequest(messages=(says("a", sound(data), image(b"cat")),))
    expected = Prompt((*ids("a"), 3), Media(data, 5), (1,), Media(b"cat", 3), (2, *ids("|")))
    assert make().prepare(ONE, request).sequence.prompt == expected


def test_sounds_are_bounded_together_before_they_are_decoded() -> None:
    half = sound(wav(MOST_SECONDS / 2 + 1, rate=4000))
    make().prepare(ONE, GenerateRequest(messages=(says(half),)))
    error = refused(make(), says(half, half))
    assert error.field == "messages[0].content[1].input_audio.data"
    assert "600 s" in error.message


@pytest.mark.parametrize(
    ("part", "word"), [("A" * 9, "not valid base64"), ("AAAA", "not a WAV or MP3")], ids=str
)
def test_what_is_no_sound_is_refused_by_name(part: str, word: str) -> None:
    audio = AudioPart(type="input_audio", input_audio=InputAudio(data=part, format="wav"))
    error = refused(make(), says("b", audio))
    assert (error.field, word in error.message) == ("messages[0].content[1].input_audio.data", True)


@pytest.mark.parametrize(
    ("part", "word"),
    [(image(b"bad"), "this is no picture"), (image_of("a"), "not valid base64")],
)
def test_what_is_no_picture_is_refused_by_name(part: ImagePart, word: str) -> None:
    error = refused(make(), says("a"), says("b", part))
    assert isinstance(error, InvalidRequest)
    assert error.field == "messages[1].content[1].image_url.url"
    assert word in error.message


@pytest.mark.parametrize(("template", "word"), [(USER_ONLY, "leaves it out"), (TWICE, "repeats")])
def test_a_template_has_to_show_each_once(template: str, word: str) -> None:
    role = "assistant" if template is USER_ONLY else "user"
    messages = says("a", image(b"cat"), role=role), says("b")
    assert word in refused(make(template), *messages).message


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("n_discard", {"n_discard": 4}),
        ("prompt_logprobs", {"logprobs": True, "prompt_logprobs": True}),
        ("cache_key", {"cache_key": "k"}),
    ],
)
def test_what_cannot_be_done_with_pictures(field: str, fields: dict[str, Any]) -> None:
    error = refused(make(), says(image(b"cat")), **fields)
    assert field in error.message


def test_pictures_count_for_the_context() -> None:
    error = refused(make(context_size=16), says(image(b"x" * 20)))
    assert isinstance(error, PromptTooLong)
    assert "23 tokens > 15" in error.message


def test_answers_with_and_without_a_projector_do_not_go_on_with_each_other() -> None:
    assert make().traits != make(sees=False).traits


def test_no_more_pictures_are_decoded_once_nobody_waits() -> None:
    request = GenerateRequest(messages=(says(image(b"cat")),))
    with while_wanted(lambda: False), pytest.raises(Withdrawn):
        make().prepare(ONE, request)
