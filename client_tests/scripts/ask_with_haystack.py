"""Asks through Haystack; tells what came as JSON.

Argument: the URL.
"""

import json
import sys

from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from pydantic import BaseModel, Field

MODEL = "arriero-demo"
QUESTION = [ChatMessage.from_user("What is a slot?")]


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


def main() -> None:
    [url] = sys.argv[1:]
    common = {"api_key": Secret.from_token("unused"), "api_base_url": f"{url}/v1", "max_retries": 0}
    options = {"temperature": 0, "max_tokens": 200}
    generator = OpenAIChatGenerator(model=MODEL, generation_kwargs=options, **common)
    parts: list[str] = []
    whole = generator.run(QUESTION)["replies"][0]
    generator.run(QUESTION, streaming_callback=lambda part: parts.append(part.content))
    typed = generator.run(QUESTION, generation_kwargs=options | {"response_format": Fact})
    embedder = OpenAITextEmbedder(model=MODEL, **common)
    told = {
        "answer": whole.text,
        "streamed": "".join(parts),
        "fact": json.loads(typed["replies"][0].text),
        "width": len(embedder.run("What is a slot?")["embedding"]),
    }
    sys.stdout.write(json.dumps(told) + "\n")


main()
