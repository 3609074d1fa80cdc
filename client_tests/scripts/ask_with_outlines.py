"""Asks through Outlines, as of OpenAI's, vLLM's, SGLang's and Ollama's; tells what came as JSON.

Argument: the URL.
"""

import json
import sys
from typing import Literal

import ollama
import openai
import outlines
from outlines.types import CFG, Regex
from pydantic import BaseModel, Field

MODEL = "arriero-demo"
QUESTION = "What is a slot?"
LARK = 'start: "perhaps" (" not")?'


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


def main() -> None:
    [url] = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    common = {"temperature": 0, "max_tokens": 200}
    plain = outlines.from_openai(client, MODEL)
    vllm = outlines.from_vllm(client, MODEL)
    sglang = outlines.from_sglang(client, MODEL)
    theirs = outlines.from_ollama(ollama.Client(url), MODEL)
    told = {
        "answer": plain(QUESTION, **common),
        "streamed": "".join(plain.stream(QUESTION, **common)),
        "fact": json.loads(plain(QUESTION, Fact, **common)),
        "vllm": [
            vllm(QUESTION, Regex("[a-c]{3}"), **common),
            vllm(QUESTION, CFG(LARK), **common),
            vllm(QUESTION, Literal["yes", "no"], **common),
            vllm(QUESTION, Fact, **common),
        ],
        "sglang": [sglang(QUESTION, Regex("[a-c]{3}"), **common), sglang(QUESTION, Fact, **common)],
        "ollama": theirs(QUESTION, Fact, options={"num_predict": 200}),
    }
    if [len(told["vllm"][0]), len(told["sglang"][0])] != [3, 3]:
        raise ValueError(told)
    if told["vllm"][1] not in ("perhaps", "perhaps not") or told["vllm"][2] not in ("yes", "no"):
        raise ValueError(told)
    sys.stdout.write(json.dumps(told) + "\n")


main()
