"""Asks through CrewAI, a model and a crew of one; tells what came as JSON.

Argument: the URL.
"""

import json
import os
import sys

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai import LLM, Agent, Crew, Task


def main() -> None:
    [url] = sys.argv[1:]
    model = LLM(
        model="openai/arriero-demo",
        base_url=f"{url}/v1",
        api_key="unused",
        temperature=0,
        max_tokens=80,
    )
    answer = model.call("What is a slot?")
    agent = Agent(
        role="Teller", goal="Answer.", backstory="Is brief.", llm=model, max_iter=1, verbose=False
    )
    task = Task(description="What is a slot?", expected_output="One sentence.", agent=agent)
    said = Crew(agents=[agent], tasks=[task], verbose=False).kickoff().raw
    sys.stdout.write("\n" + json.dumps({"answer": answer, "said": said}) + "\n")


main()
