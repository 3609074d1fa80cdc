"""An agent of OpenAI's Agents SDK with one tool; prints JSON. Run by the client's own Python.

Arguments: the base URL, and the question.
"""

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel


class Size(BaseModel):
    slots: int


@function_tool
def list_agents() -> str:
    """List the agents of the fleet."""
    return '{"agents": ["north", "south"]}'


async def asked(model: Any, question: str) -> dict[str, Any]:
    """What the agent did, unstreamed and streamed, and an answer held to a type."""
    settings = ModelSettings(temperature=0, max_tokens=120)
    agent = Agent(name="operator", model=model, tools=[list_agents], model_settings=settings)
    run = await Runner.run(agent, question, max_turns=4)
    streamed = Runner.run_streamed(agent, question, max_turns=4)
    events = [event.type async for event in streamed.stream_events()]
    typed = Agent(name="counter", model=model, output_type=Size, model_settings=settings)
    size = (await Runner.run(typed, "How many slots has an agent?")).final_output
    return {
        "items": [item.type for item in run.new_items],
        "answer": run.final_output,
        "streamed": streamed.final_output,
        "num_events": len(events),
        "typed": size.model_dump(),
    }


async def main() -> None:
    url, question = sys.argv[1:]
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="unused", max_retries=0)
    kinds = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
    models = {name: kind("arriero-demo", client) for name, kind in kinds.items()}
    sys.stdout.write(
        json.dumps({name: await asked(model, question) for name, model in models.items()})
    )


asyncio.run(main())
