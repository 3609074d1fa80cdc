"""Asks through litellm's asynchronous calls, in Ollama's API; tells what came as JSON.

Argument: the URL.
"""

import asyncio
import json
import sys
from typing import Any

import litellm

QUESTION = [{"role": "user", "content": "What is a slot?"}]


async def main() -> None:
    [url] = sys.argv[1:]
    litellm.telemetry = False
    common: dict[str, Any] = {"api_base": url, "temperature": 0, "max_tokens": 40}
    chat = common | {"model": "ollama_chat/arriero-demo", "messages": QUESTION}
    whole = await litellm.acompletion(**chat)
    parts = [part async for part in await litellm.acompletion(**chat, stream=True)]
    text = await litellm.acompletion(**(chat | {"model": "ollama/arriero-demo"}))
    found = await litellm.aembedding(
        model="ollama/arriero-demo", api_base=url, input=["What is a slot?", "word " * 50_000]
    )
    told = {
        "answer": whole.choices[0].message.content,
        "streamed": "".join(part.choices[0].delta.content or "" for part in parts),
        "text": text.choices[0].message.content,
        "width": len(found.data[0]["embedding"]),
    }
    sys.stdout.write(json.dumps(told) + "\n")


asyncio.run(main())
