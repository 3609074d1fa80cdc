"""Asks through smolagents; tells what came as JSON.

Argument: the URL.
"""

import json
import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage

QUESTION = ChatMessage(role="user", content="What is a slot?")


@tool
def look(place: str) -> str:
    """Looks somewhere.

    Args:
        place: Where to look.
    """
    return f"nothing at {place}"


def main() -> None:
    [url] = sys.argv[1:]
    model = OpenAIServerModel(
        "arriero-demo", api_base=f"{url}/v1", api_key="unused", temperature=0, max_tokens=200
    )
    whole = model.generate([QUESTION])
    parts = [part.content or "" for part in model.generate_stream([QUESTION])]
    agent = ToolCallingAgent(tools=[look], model=model, max_steps=2, verbosity_level=0)
    agent.run("Look around.")
    told = {"answer": whole.content, "streamed": "".join(parts)}
    sys.stdout.write(json.dumps(told) + "\n")


main()
