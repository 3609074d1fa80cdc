"""What llama-server says on models with real weights, token by token, to prompts of many kinds.

Its greedy texts are recorded in `reference.jsonl`, since no test run has time to build it. The
first line of that file says which build it was. To record them again:

    make bench-setup                        # builds llama-server
    python -m integration_tests.reference   # takes ten minutes of 2 cores
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from bench import peer
from bench.sides import Load, start_theirs
from bench.store import machine
from demo.packaged import path_of

NUM_RANKED = 6

END = b""
"""Stands for an end-of-generation token."""

FILE = Path(__file__).with_suffix(".jsonl")

SMOLLM2, GEMMA = "smollm2", "gemma3-270m"

CONTEXT_SIZE = 8192

MOST = 40
"""Tokens of a recorded text."""

FAR = 2.0
"""Tokens this much less likely than the best, in natural logarithms, are not recorded."""

NUM_SAID = 12
"""Tokens of an answer that the next turn of a conversation repeats."""

NUM_TURNS = 4
"""Of the conversation that the first chat begins."""

CHATS = (
    "What is a llama? Answer in two sentences.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Erkläre in zwei Sätzen, warum der Himmel blau ist.",
    "Write a short poem about the sea 🌊 with emoji 🐚🐟 in each line.",
    "Repeat this list three times: red, green, blue, yellow, black.",
    "用中文介绍一下北京。",
    "Name the planets of the solar system, in order from the sun.",
    "¿Cuál es la capital de Perú y por qué es famosa?",
    "How do I boil an egg?",
    "Explain what this prints: for i in range(3): print(i ** 2)",
    "Give me three reasons to learn a second language.",
    "Write an SQL query that counts the orders of each customer.",
    "Pourquoi les feuilles tombent-elles en automne ?",
    "What is 17 plus 25? Explain each step.",
    "Translate into French: The cat sleeps on the warm roof.",
    "日本の首都はどこですか。",
    "Write JSON for a person with a name, an age and two hobbies.",
    "👍👎😀😅🤷‍♀️ What do these mean?",
    "Tell a story about a mule that crosses a mountain.",
    "What does `git rebase` do?",
    "Столица России и её история.",
    "Write a haiku about winter.",
    "Fix this code: def f(x) return x+1",
    "Which is heavier, a kilogram of iron or a kilogram of feathers?",
    "اكتب جملة عن البحر.",
    "Summarise the plot of Romeo and Juliet.",
    "Write a shell loop that renames all .txt files to .md.",
    "Qual é a diferença entre clima e tempo?",
)

FURTHER = (
    "Say it in other words.",
    "Give me an example.",
    "Thank you 🙏! What did I ask first?",
)
"""What a user says next, by turn."""

BEGINNINGS = (
    "The three laws of thermodynamics are",
    "def quicksort(items):\n    ",
    "Die Katze sitzt auf dem Dach und",
    "1, 1, 2, 3, 5, 8, 13,",
    "🎂🎉 Happy birthday! Today",
    "In 1969, the first human",
)
"""For a model without a chat template."""

Messages = list[dict[str, str]]
Prompt = str | Messages


@dataclass(frozen=True, slots=True)
class Choice:
    """The likeliest token as bytes, and `gaps`: how far the next ones are behind it.

    In natural logarithms, as `log_prob` is.
    """

    best: bytes
    log_prob: float
    gaps: dict[bytes, float]


@dataclass(frozen=True, slots=True)
class Text:
    """What llama-server says: `choices` are its tokens."""

    num_prompt_tokens: int
    choices: Sequence[Choice]

    def text(self, num_tokens: int = NUM_SAID) -> str:
        """Of the first tokens, whole characters only."""
        said = b"".join(choice.best for choice in self.choices[:num_tokens])
        return said.decode(errors="ignore")


# ---- prompts


def chats() -> list[Messages]:
    return [[_said("user", text)] for text in CHATS]


def long_chats() -> list[Messages]:
    """Of about 4,000 and 7,000 tokens; the second begins as the first does."""
    questions = ((15_300, "Which llama carried most?"), (22_100, "Sum up what you have read."))
    return [[_said("user", f"{_long_text()[:size]}\n\n{question}")] for size, question in questions]


def long_beginnings() -> list[str]:
    """Of about 700 and 4,000 tokens, for a model without a chat template."""
    return [_long_text()[:size] for size in (3_500, 15_500)]


@cache
def _long_text() -> str:
    """Prose of lawyers, and then a diary."""
    licence = (Path(__file__).parent.parent / "LICENSE").read_text()
    draw = Random(40)
    llamas, places = ("Abra", "Brisa", "Coco", "Dulce"), ("Cusco", "Puno", "La Paz", "Oruro")
    loads = ("stones", "letters", "blankets", "potatoes", "candles")

    def drawn(among: Sequence[str]) -> str:
        return among[int(draw.random() * len(among))]

    days = (
        f"Day {day}: {drawn(llamas)} carried {int(draw.random() * 90)} {drawn(loads)} from "
        f"{drawn(places)} to {drawn(places)}."
        for day in range(400)
    )
    return "\n".join([" ".join(licence.split()), *days])


def next_turn(messages: Messages, answer: Text) -> Messages:
    """The conversation with an answer, and what the user says next."""
    further = FURTHER[len(messages) // 2 % len(FURTHER)]
    return [*messages, _said("assistant", answer.text()), _said("user", further)]


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


# ---- the record


class Reference:
    """The recorded texts of one model."""

    def __init__(self, model: str) -> None:
        self._texts = {}
        for line in islice(FILE.read_text().splitlines(), 1, None):
            record = json.loads(line)
            if record["model"] == model:
                choices = [_read_choice(*each) for each in record["choices"]]
                text = Text(record["num_prompt_tokens"], choices)
                self._texts[record["cells"], record["key"]] = text

    def text(self, prompt: Prompt, cells: str = "f16") -> Text:
        """What llama-server says to `prompt` with cells of this type."""
        try:
            return self._texts[cells, _key(prompt)]
        except KeyError:
            raise AssertionError(
                f"{FILE.name} does not have {_excerpt(prompt)!r} with {cells} cells: "
                "python -m integration_tests.reference"
            ) from None


def _key(prompt: Prompt) -> str:
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def _excerpt(prompt: Prompt) -> str:
    text = prompt if isinstance(prompt, str) else " | ".join(each["content"] for each in prompt)
    return text if len(text) < 80 else f"{text[:40]} ... {text[-40:]}"


def _read_choice(best: str, log_prob: float, gaps: dict[str, float]) -> Choice:
    return Choice(_bytes(best), log_prob, {_bytes(each): gap for each, gap in gaps.items()})


def _written_choice(choice: Choice) -> tuple[str, float, dict[str, float]]:
    gaps = {_text(each): round(gap, 4) for each, gap in choice.gaps.items() if gap < FAR}
    return _text(choice.best), round(choice.log_prob, 4), gaps


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _text(token: bytes) -> str:
    """A token may be a part of a character."""
    return token.decode(errors="surrogateescape")


# ---- recording


class Recorder:
    """llama-server with one model; `lines` are what was recorded."""

    def __init__(self, http: aiohttp.ClientSession, url: str, model: str, cells: str) -> None:
        self._http = http
        self._url = url
        self._names = {"model": model, "cells": cells}
        self._known: dict[str, Text] = {}
        self.lines: list[str] = []

    async def text(self, prompt: Prompt) -> Text:
        """What it says to `prompt`, which is recorded once."""
        key = _key(prompt)
        if key not in self._known:
            said = self._known[key] = await self._ask(prompt)
            self.lines.append(
                json.dumps(
                    self._names
                    | {"key": key, "prompt": _excerpt(prompt)}
                    | {"num_prompt_tokens": said.num_prompt_tokens}
                    | {"choices": [_written_choice(each) for each in said.choices]}
                )
            )
            sys.stdout.write(f"{self._names} {said.num_prompt_tokens} {said.text(MOST)!r}\n")
        return self._known[key]

    async def _ask(self, prompt: Prompt) -> Text:
        text = prompt
        if not isinstance(text, str):
            text = (await self._post("/apply-template", messages=text))["prompt"]
        tokens = await self._tokens(text)
        said = await self._post(
            "/completion", prompt=tokens, n_predict=MOST, temperature=0, return_tokens=True
        )
        choices = [
            await self._choice([*tokens, *said["tokens"][:place]], token)
            for place, token in enumerate(said["tokens"])
        ]
        return Text(len(tokens), choices)

    async def _choice(self, before: list[int], token: int) -> Choice:
        """How likely `token` is after these, and the next ones.

        The server does not tell that of a part of a character. So a whole word is forced here, and
        what it tells is how likely the tokens were without that.
        """
        [forced] = await self._tokens(" the", add_special=False)
        answer = await self._post(
            "/completion",
            prompt=before,
            n_predict=1,
            temperature=0,
            n_probs=NUM_RANKED,
            logit_bias=[[forced, 1000]],
        )
        tops = answer["completion_probabilities"][0]["top_logprobs"]
        [log_prob] = [each["logprob"] for each in tops if each["id"] == token]
        [best] = [bytes(each["bytes"]) for each in tops if each["id"] == token]
        others = [each for each in reversed(tops) if each["id"] != token]
        gaps = {bytes(each["bytes"]): log_prob - each["logprob"] for each in others}
        return Choice(best, log_prob, gaps)

    async def _tokens(self, text: str, *, add_special: bool = True) -> list[int]:
        answer = await self._post("/tokenize", content=text, add_special=add_special)
        tokens: list[int] = answer["tokens"]
        return tokens

    async def _post(self, path: str, **body: Any) -> Any:
        async with self._http.post(self._url + path, json=body) as response:
            answer = await response.json()
        if response.status != 200:
            raise SystemExit(f"reference: llama-server answers {response.status}: {answer}")
        return answer


async def record_chats(recorder: Recorder) -> None:
    for each in [*chats(), *long_chats()]:
        await recorder.text(each)


async def record_smollm2(recorder: Recorder) -> None:
    """The first chat is gone on with, and the longest."""
    await record_chats(recorder)
    messages = chats()[0]
    for _ in range(NUM_TURNS):
        messages = next_turn(messages, await recorder.text(messages))
    longest = long_chats()[-1]
    await recorder.text(next_turn(longest, await recorder.text(longest)))


async def record_gemma(recorder: Recorder) -> None:
    for text in BEGINNINGS:
        await recorder.text(text)
    for text in long_beginnings():
        await recorder.text(gone_on_with(text, await recorder.text(text)))


def gone_on_with(prompt: str, answer: Text) -> str:
    """The text with its continuation, and some words more."""
    return f"{prompt}{answer.text()} In short,"


RECORDS = (
    (SMOLLM2, "f16", record_smollm2),
    (SMOLLM2, "q8_0", record_chats),
    (GEMMA, "f16", record_gemma),
)


async def record(model: str, cells: str, ask: Callable[[Recorder], Awaitable[None]]) -> list[str]:
    """The file's lines of one server."""
    async with AsyncExitStack() as stack:
        load = Load(path_of(model), slots=1, context_size=CONTEXT_SIZE, threads=1)
        options = ("--swa-full", "--cache-type-k", cells, "--cache-type-v", cells)
        side = await start_theirs(stack, load, options=options)
        # llama-server closes idle connections as the next request comes.
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=None)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        recorder = Recorder(await stack.enter_async_context(session), side.url, model, cells)
        await ask(recorder)
        return recorder.lines


async def record_all() -> list[str]:
    """The file's lines after the first one."""
    parts = await asyncio.gather(*(record(*each) for each in RECORDS))
    return [line for part in parts for line in part]


def main() -> None:
    build = {
        "recorded_on": datetime.now(UTC).date().isoformat(),
        "llama-server": peer.server_version(),
        "llama-cpp-python": version("llama-cpp-python"),
        "options": peer.options(),
        "machine": machine(),
    }
    lines = [json.dumps(build), *asyncio.run(record_all())]
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
