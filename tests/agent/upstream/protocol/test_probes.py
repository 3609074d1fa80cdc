import json
import wave
from base64 import b64decode
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from arriero.agent.engine.media.audio import seconds_of
from arriero.agent.upstream.protocol.dialects import OLLAMA, OTHER, SGLANG, VLLM
from arriero.agent.upstream.protocol.listing import ListedModel
from arriero.agent.upstream.protocol.probes import (
    MAX_TOKENS,
    RATE,
    SECONDS,
    Probe,
    cut,
    first_probe,
    going_on_probe,
    info_of,
    opening_probe,
    passes,
    probes_of,
    server_of,
    tone,
    wants_new_names,
    with_new_names,
)
from arriero.shared.inference import ImageUrl
from arriero.shared.reports.model_info import Upstream

PROBES = {each.shows: each for each in (first_probe("m"), *probes_of("m", VLLM))}


def said(content: str | None = "yes", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def counted(prompt: int, answer: int) -> dict[str, Any]:
    return {**said(), "usage": {"prompt_tokens": prompt, "completion_tokens": answer}}


def cut_off(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "length"}]}


CALL = [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]
SCORED = {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "a"}]}]}

RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("messages", said()),
    ("prompt", {"choices": [{"text": "four"}]}),
    ("token_ids", counted(3, 4)),
    ("token_ids", counted(4, 4)),
    ("logprobs", {"choices": [{"message": {}, "logprobs": SCORED}]}),
    ("tools", said()),
    ("vision", said()),
    ("audio", said()),
    ("forced_calls", said(None, tool_calls=CALL)),
    ("forced_calls", cut_off(content=None, reasoning_content="hm")),
    ("json_schema", said('{"arriero": "probe"}')),
    ("json_schema", cut_off(content="", reasoning="hm")),
    ("json_schema", cut_off(content='{\n  "arriero":', reasoning_content="hm")),
    ("ignore_eos", counted(9, MAX_TOKENS)),
    ("embed", {"data": [{"index": 0, "embedding": [0.5]}]}),
    ("seed", said()),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"error": "no"}),
    ("token_ids", counted(9, 4)),
    ("token_ids", said()),
    ("logprobs", said()),
    ("forced_calls", said()),
    ("json_schema", said("yes")),
    ("json_schema", said('{"other": 1}')),
    ("json_schema", cut_off(content="The answer is")),
    ("ignore_eos", counted(9, 2)),
    ("embed", {"data": []}),
    ("vision", {"error": "no"}),
    ("audio", {"error": "no"}),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_a_server_that_can(name: str, answer: dict[str, Any]) -> None:
    assert passes(PROBES[name], json.dumps(answer).encode())


@pytest.mark.parametrize(("name", "answer"), WRONG)
def test_a_server_that_takes_a_field_and_ignores_it(name: str, answer: dict[str, Any]) -> None:
    assert not passes(PROBES[name], json.dumps(answer).encode())


def test_counts_of_a_stream() -> None:
    without = b'data: {"choices": [{"delta": {}}], "usage": null}\n\n'
    last = b'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: [DONE]\n\n'
    assert passes(PROBES["counts"], without + last)
    assert not passes(PROBES["counts"], without + b"data: [DONE]\n\n")


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"data: {\n\n", b'{"choices": []}'])
def test_an_answer_of_another_shape_shows_nothing(probe: Probe, body: bytes) -> None:
    assert not passes(probe, body)


def test_the_picture_is_one() -> None:
    _, part = PROBES["vision"].body["messages"][0]["content"]
    data = ImageUrl(url=part["image_url"]["url"]).base64
    with Image.open(BytesIO(b64decode(data, validate=True))) as picture:
        assert (picture.format, picture.size) == ("PNG", (64, 64))
        assert picture.getpixel((5, 5)) == (255, 0, 0)


def test_a_field_that_no_other_server_knows_is_not_tried() -> None:
    assert "ignore_eos" not in {each.shows for each in probes_of("m", OTHER)}


COUNTED = "one, two, three, four, five, six, seven, eight"


def streamed(content: str | None) -> bytes:
    """A stream of two chunks with text, and one with counts."""
    half = None if content is None else len(content) // 2
    texts = [content, None] if content is None else [content[:half], content[half:]]
    chunks = [{"choices": [{"delta": {"content": each}}]} for each in texts]
    lines = [f"data: {json.dumps(each)}\n\n" for each in [*chunks, {"choices": []}]]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def test_the_answer_is_cut_before_a_word() -> None:
    assert cut(streamed(COUNTED)) == ("one, two, three, four, five,", " six, seven, eight")


@pytest.mark.parametrize(
    "answer",
    [
        streamed(None),
        streamed(""),
        streamed("one two"),
        streamed("no-space-in-all-of-this-answer"),
        streamed("twelve eggs and\n two lines of it"),
        streamed("ha ha ha ha ha ha ha ha ha ha"),
        b"",
        b"[]",
    ],
)
def test_of_other_answers_nothing_can_be_told(answer: bytes) -> None:
    assert cut(answer) is None
    assert going_on_probe("m", SGLANG, answer) is None


def test_the_first_half_is_given_as_the_assistants() -> None:
    probe = going_on_probe("m", SGLANG, streamed(COUNTED))
    assert probe is not None
    asked = opening_probe("m").body
    assert probe.body["messages"] == [
        *asked["messages"],
        {"role": "assistant", "content": "one, two, three, four, five,"},
    ]
    assert probe.body["continue_final_message"]
    plain = going_on_probe("m", OLLAMA, streamed(COUNTED))
    assert plain is not None and plain.body.keys() == asked.keys()


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (" six, seven, eight", True),
        (" six, sev", True),
        (" six, seven, eight, nine", True),
        ("six, seven, eight", False),
        ("one, two, three", False),
        (COUNTED, False),
        ("Sure! six, seven", False),
        (" six", False),
        ("", False),
        (None, False),
    ],
)
def test_only_who_says_the_second_half_goes_on(answer: str | None, goes_on: bool) -> None:
    probe = going_on_probe("m", SGLANG, streamed(COUNTED))
    assert probe is not None
    assert passes(probe, streamed(answer)) == goes_on


MODEL = ListedModel(id="m", owner="vllm", context_size=4096)


def test_what_was_shown_and_what_comes_with_its_kind() -> None:
    server = server_of(MODEL, VLLM, {"messages", "tools", "counts", "seed"}, has_new_names=False)
    assert {"messages", "tools", "thinking", "tokenize", "count_tokens"} <= server.abilities
    assert not {"json_schema", "embed", "counts", "seed"} & server.abilities
    assert (server.counts_at_end, server.refused, server.renamed) == (True, frozenset(), {})


def test_a_server_that_shows_little() -> None:
    server = server_of(MODEL, OTHER, {"messages"}, has_new_names=True)
    assert server.abilities == {"messages", "penalties"}
    assert not server.counts_at_end
    assert server.refused == {"seed"}
    assert server.renamed == {"max_tokens": "max_completion_tokens"}


def test_newer_models_of_openai_have_new_names() -> None:
    words = "Unsupported parameter: 'max_tokens' ... Use 'max_completion_tokens' instead."
    assert wants_new_names(words)
    assert not wants_new_names("the model does not exist")
    body = with_new_names(first_probe("m")).body
    assert "max_completion_tokens" in body
    assert "max_tokens" not in body


def test_what_balancers_hear() -> None:
    server = server_of(MODEL, OLLAMA, {"prompt", "embed"}, has_new_names=False)
    info = info_of(server, MODEL, "name", "host:1")
    assert (info.name, info.context_size, info.tasks) == ("name", 4096, ("generate", "embed"))
    assert info.fingerprint is not None
    assert info.upstream == Upstream(
        kind="ollama", address="host:1", abilities=("penalties", "prompt")
    )
    seeing = server_of(MODEL, OLLAMA, {"messages", "vision"}, has_new_names=False)
    assert info_of(seeing, MODEL, "name", "host:1").tasks == ("generate", "vision")
    assert info_of(seeing, MODEL, "name", "host:1").fingerprint is None
    assert "vision" in info_of(seeing, MODEL, "name", "host:1").abilities
    hearing = server_of(MODEL, OLLAMA, {"messages", "audio"}, has_new_names=False)
    assert info_of(hearing, MODEL, "name", "host:1").tasks == ("generate", "audio")
    silent = server_of(MODEL, OLLAMA, (), has_new_names=False)
    assert info_of(silent, MODEL, "name", "host:1").tasks == ()


def test_it_is_a_sound() -> None:
    with wave.open(BytesIO(b64decode(tone(), validate=True))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, RATE)
        frames = sound.readframes(sound.getnframes())
    assert len(frames) == 2 * RATE * SECONDS
    assert len(set(frames)) > 50, "not silence"


def test_agents_of_ours_take_it() -> None:
    assert seconds_of(b64decode(tone())) == SECONDS


def test_servers_get_it() -> None:
    [probe] = [each for each in probes_of("m", OTHER) if each.shows == "audio"]
    _, part = probe.body["messages"][0]["content"]
    assert part == {"type": "input_audio", "input_audio": {"data": tone(), "format": "wav"}}
    assert probe.path == first_probe("m").path
