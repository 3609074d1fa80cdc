"""The same pictures through llama.cpp's own program: greedy answers are equal, word for word.

On demand: `make bench-setup` builds that program, which takes minutes.
"""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from bench.peer import media_client_path
from integration_tests.daemons import MODEL, Fleet, until
from tests.agent.engine.llama.projectors import (
    png,
    write_gemma,
    write_gemma_model,
    write_llava,
    write_qwen,
    write_qwen_model,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        not media_client_path().is_file(), reason="`make bench-setup` has not built llama-mtmd-cli"
    ),
]

BEFORE, AFTER = "What is this: ", " Tell me!"
MARK = "<__media__>"
"""Where llama.cpp's program puts a picture."""
WRITTEN_LAST = "\n\n"
"""After its answer, by a thread of its own, which its exit does not wait for.

https://github.com/ggml-org/llama.cpp/issues/22142
"""
MAX_RUNS = 20
"""On a busy machine one of ten loses its last words."""
NUM_TOKENS = 32
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
PICTURES = {
    "small": png(40, 30, seed=1),
    "wide": png(200, 60, seed=2),
    "tall": png(70, 300, seed=3),
}


def written(family: str, folder: Path) -> tuple[Path, Path]:
    """A model and its projector."""
    projector = folder / "projector.gguf"
    if family == "llava":
        return MODEL, write_llava(projector)
    if family == "gemma":
        return write_gemma_model(folder / "model.gguf", window=512), write_gemma(projector)
    return write_qwen_model(folder / "model.gguf"), write_qwen(projector)


async def theirs(model: Path, projector: Path, pictures: list[Path]) -> str:
    """What llama.cpp's program answers about these pictures."""
    flags = {"-m": model, "--mmproj": projector, "-n": NUM_TOKENS, "--temp": 0, "-c": 1024, "-t": 1}
    flags |= {"-p": BEFORE + MARK * len(pictures) + AFTER, "--chat-template": "chatml"}
    words = [str(word) for flag in flags.items() for word in flag]
    images = [word for path in pictures for word in ("--image", str(path))]
    command = [str(media_client_path()), *words, *images]
    for _ in range(MAX_RUNS):
        out = await _output([*command, "--no-jinja", "--no-warmup"])
        if out.endswith(WRITTEN_LAST):
            return _readable(out)
    raise AssertionError(f"llama-mtmd-cli lost the end of each of {MAX_RUNS} answers: {out!r}")


async def _output(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, log = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, log.decode(errors="replace")[-2000:]
    return out.decode(errors="replace")


def _readable(text: str) -> str:
    """Without what is no text: a model with random weights says half characters."""
    return text.replace("\ufffd", "").strip()


async def ours(fleet: Fleet, pictures: list[Path]) -> str:
    """What an agent answers through the balancer."""
    data = [base64.b64encode(path.read_bytes()).decode() for path in pictures]
    images = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{each}"}}
        for each in data
    ]
    before, after = ({"type": "text", "text": text} for text in (BEFORE, AFTER))
    content: list[dict[str, Any]] = [before, *images, after]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": NUM_TOKENS}
    url = f"{fleet.inference}/v1/chat/completions"
    async with fleet.http.post(url, json=body | {"temperature": 0}) as answer:
        document = await answer.json()
    assert answer.status == 200, document
    return _readable(str(document["choices"][0]["message"]["content"]))


@pytest.mark.parametrize("family", ["llava", "qwen", "gemma"])
async def test_answers_are_those_of_llama_mtmd_cli(
    family: str, bare_fleet: Fleet, tmp_path: Path
) -> None:
    model, projector = written(family, tmp_path)
    template = tmp_path / "chatml.jinja"
    template.write_text(CHATML)
    await bare_fleet.start_agent(model=model, projector=projector, chat_template=template)
    paths = [tmp_path / f"{name}.png" for name in PICTURES]
    for path, data in zip(paths, PICTURES.values(), strict=True):
        path.write_bytes(data)

    async def sees() -> bool:
        async with bare_fleet.http.get(f"{bare_fleet.inference}/v1/models") as answer:
            return any("vision" in each.get("tasks", ()) for each in (await answer.json())["data"])

    await until(sees)
    answers = []
    for pictures in ([paths[0]], [paths[1]], [paths[2]], paths):
        answers.append(await theirs(model, projector, pictures))
        assert await ours(bare_fleet, pictures) == answers[-1]
    assert len(set(answers)) > 1, "pictures make a difference"
