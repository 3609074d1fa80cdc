"""Asks through Pydantic AI, by chats and by responses; tells what came as JSON.

Argument: the URL.
"""

import asyncio
import json
import sys

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

MODEL = "arriero-demo"
QUESTION = "What is a slot?"
SETTINGS = ModelSettings(temperature=0, max_tokens=200)


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


async def main() -> None:
    [url] = sys.argv[1:]
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="unused")
    chat = OpenAIChatModel(MODEL, provider=provider)
    whole = await Agent(chat, model_settings=SETTINGS).run(QUESTION)
    parts = []
    async with Agent(chat, model_settings=SETTINGS).run_stream(QUESTION) as stream:
        async for part in stream.stream_text(delta=True):
            parts.append(part)
    typed = await Agent(chat, model_settings=SETTINGS, output_type=Fact).run(QUESTION)
    responses = OpenAIResponsesModel(MODEL, provider=provider)
    other = await Agent(responses, model_settings=SETTINGS).run(QUESTION)
    told = {
        "answer": whole.output,
        "streamed": "".join(parts),
        "fact": typed.output.model_dump(),
        "response": other.output,
    }
    sys.stdout.write(json.dumps(told) + "\n")


asyncio.run(main())
