"""Asks through Strands, by OpenAI's API and by Ollama's; tells what came as JSON.

Argument: the URL.
"""

import json
import sys

from pydantic import BaseModel, Field
from strands import Agent
from strands.models.ollama import OllamaModel
from strands.models.openai import OpenAIModel

MODEL = "arriero-demo"
QUESTION = "What is a slot?"


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


def main() -> None:
    [url] = sys.argv[1:]
    options = {"temperature": 0, "max_tokens": 200}
    openais = OpenAIModel(
        client_args={"base_url": f"{url}/v1", "api_key": "unused", "max_retries": 0},
        model_id=MODEL,
        params=options,
    )
    ollamas = OllamaModel(host=url, model_id=MODEL, temperature=0.0, max_tokens=200)
    answers = [
        str(Agent(model=model, callback_handler=None)(QUESTION)).strip()
        for model in (openais, ollamas)
    ]
    if len({*answers}) != 1:
        raise ValueError(answers)
    typed = Agent(model=openais, callback_handler=None)(QUESTION, structured_output_model=Fact)
    told = {"answer": answers[0], "fact": typed.structured_output.model_dump()}
    sys.stdout.write(json.dumps(told) + "\n")


main()
