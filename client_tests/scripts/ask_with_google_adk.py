"""Asks through Google's Agent Development Kit, by litellm in Ollama's API; tells what came as JSON.

Argument: the URL.
"""

import asyncio
import json
import sys

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


def look(place: str) -> str:
    """Looks somewhere."""
    return f"nothing at {place}"


async def main() -> None:
    [url] = sys.argv[1:]
    model = LiteLlm(model="ollama_chat/arriero-demo", api_base=url, max_tokens=80)
    runner = InMemoryRunner(LlmAgent(name="demo", model=model, tools=[look]), app_name="demo")
    session = await runner.session_service.create_session(app_name="demo", user_id="somebody")
    asked = types.Content(role="user", parts=[types.Part(text="What is a slot?")])
    said = ""
    async for event in runner.run_async(
        user_id="somebody", session_id=session.id, new_message=asked
    ):
        parts = event.content.parts if event.content and event.content.parts else []
        said += "".join(part.text or "" for part in parts)
    sys.stdout.write(json.dumps({"said": said}) + "\n")


asyncio.run(main())
