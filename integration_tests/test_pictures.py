"""Pictures and sounds through both daemons: every API that takes them, and who does not."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from integration_tests.daemons import MODEL, Fleet, until
from tests.agent.engine.llama.projectors import (
    HEARD_TOKENS,
    LLAVA_TOKENS,
    png,
    wav,
    write_llava,
    write_ultravox,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTION = "What is a slot?"


def webp() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 30), (10, 200, 30)).save(out, "WEBP")
    return out.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def chat(data: bytes, kind: str = "png") -> dict[str, Any]:
    url = {"url": f"data:image/{kind};base64,{encoded(data)}"}
    content = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": url}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 6, "temperature": 0}


async def asked(fleet: Fleet, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as answer:
        return answer.status, await answer.json()


async def until_it_has(fleet: Fleet, model: str, *senses: str) -> None:
    """An agent tells that it takes media right after it was let in."""

    async def has() -> bool:
        async with fleet.http.get(f"{fleet.inference}/v1/models/{model}") as answer:
            return set(senses) <= set((await answer.json()).get("tasks", ()))

    await until(has)


async def test_every_api_takes_the_same_picture(bare_fleet: Fleet, tmp_path: Path) -> None:
    await bare_fleet.start_agent()  # it has the same model, and reads none
    await bare_fleet.start_agent(projector=write_llava(tmp_path / "projector.gguf"))
    await until_it_has(bare_fleet, "arriero-demo", "vision")
    picture = png(90, 60)
    status, first = await asked(bare_fleet, "/v1/chat/completions", chat(picture))
    assert status == 200, first
    text, num_tokens = first["choices"][0]["message"]["content"], first["usage"]["prompt_tokens"]
    assert num_tokens > LLAVA_TOKENS

    status, again = await asked(bare_fleet, "/v1/chat/completions", chat(picture))
    assert again["choices"][0]["message"]["content"] == text
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == num_tokens - 1, "it is neither encoded nor read again"

    status, native = await asked(bare_fleet, "/api/v1/generate", chat(picture) | {"stream": False})
    assert (status, native["text"]) == (200, text)
    source = {"type": "base64", "media_type": "image/png", "data": encoded(picture)}
    blocks = [{"type": "text", "text": QUESTION}, {"type": "image", "source": source}]
    body = {"max_tokens": 6, "messages": [{"role": "user", "content": blocks}], "temperature": 0}
    status, message = await asked(bare_fleet, "/v1/messages", body)
    assert (status, message["content"][0]["text"]) == (200, text)
    _, counted = await asked(bare_fleet, "/v1/messages/count_tokens", body)
    assert counted["input_tokens"] == num_tokens
    parts = [
        {"type": "input_text", "text": QUESTION},
        {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(picture)}"},
    ]
    body = {"input": [{"role": "user", "content": parts}], "max_output_tokens": 6, "temperature": 0}
    status, response = await asked(bare_fleet, "/v1/responses", body)
    assert (status, response["output"][0]["content"][0]["text"]) == (200, text)
    said = {"role": "user", "content": QUESTION, "images": [encoded(picture)]}
    options = {"num_predict": 6, "temperature": 0}
    body = {"model": "arriero-demo", "messages": [said], "stream": False, "options": options}
    status, answer = await asked(bare_fleet, "/api/chat", body)
    assert (status, answer["prompt_eval_count"]) == (200, num_tokens), "before the text"

    status, other = await asked(bare_fleet, "/v1/chat/completions", chat(webp(), "webp"))
    assert (status, other["usage"]["prompt_tokens"]) == (200, num_tokens)
    status, broken = await asked(bare_fleet, "/v1/chat/completions", chat(picture[:50]))
    assert status == 400
    assert broken["error"]["param"] == "messages[0].content[1].image_url.url"


async def test_sounds_go_to_an_agent_that_hears(bare_fleet: Fleet, tmp_path: Path) -> None:
    await bare_fleet.start_agent(projector=write_llava(tmp_path / "eyes.gguf"))
    await bare_fleet.start_agent(projector=write_ultravox(tmp_path / "ears.gguf"))
    await until_it_has(bare_fleet, "arriero-demo", "vision", "audio")
    audio = {"data": encoded(wav(1.0)), "format": "wav"}
    body = chat(png(90, 60))
    content = body["messages"][0]["content"]
    seen, heard = content[1], {"type": "input_audio", "input_audio": audio}
    counts = []
    for part, tokens in ((seen, LLAVA_TOKENS), (heard, HEARD_TOKENS)) * 2:
        content[1] = part
        status, answer = await asked(bare_fleet, "/v1/chat/completions", body)
        assert status == 200, answer
        counts.append(answer["usage"]["prompt_tokens"] - tokens)
    assert len(set(counts)) == 1, "the same texts beside"
    native = body | {"stream": False}
    status, told = await asked(bare_fleet, "/api/v1/generate", native)
    assert (status, told["text"]) == (200, answer["choices"][0]["message"]["content"])
    content.append(seen)
    status, refused = await asked(bare_fleet, "/v1/chat/completions", body)
    assert status in (400, 501), "no agent has both"
    audio["data"] = encoded(b"RIFF")
    content.pop()
    status, refused = await asked(bare_fleet, "/v1/chat/completions", body)
    assert (status, refused["error"]["param"]) == (400, "messages[0].content[1].input_audio.data")


async def test_a_projector_comes_with_the_desired_state(bare_fleet: Fleet, tmp_path: Path) -> None:
    projector = write_llava(tmp_path / "projector.gguf").absolute().as_uri()
    await bare_fleet.start_agent(model=None, slots=2, context_size=512)
    model = {"name": "seeing", "source": MODEL.absolute().as_uri(), "projector": projector}
    url = f"{bare_fleet.management}/api/v1/desired-state"
    async with bare_fleet.http.put(url, json={"models": [model]}) as answer:
        assert answer.status == 200, await answer.text()

    await until_it_has(bare_fleet, "seeing", "vision")
    body = chat(png(90, 60)) | {"model": "seeing"}
    status, first = await asked(bare_fleet, "/v1/chat/completions", body)
    assert (status, first["usage"]["prompt_tokens"] > LLAVA_TOKENS) == (200, True)

    async def is_measured() -> bool:
        async with bare_fleet.http.get(f"{bare_fleet.management}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        found = [each for each in lines if each.startswith("arriero_agent_media_cache_bytes{")]
        return any(float(each.rpartition(" ")[2]) > 0 for each in found)

    await until(is_measured)
    async with bare_fleet.http.put(url, json={"models": []}) as answer:
        assert answer.status == 200, await answer.text()


async def test_a_model_without_a_projector_says_so(shared_fleet: Fleet) -> None:
    status, refused = await asked(shared_fleet, "/v1/chat/completions", chat(png(8, 8)))
    assert status == 400
    assert "--projector" in refused["error"]["message"]
    assert refused["error"]["param"] == "messages[0].content[1].image_url.url"
