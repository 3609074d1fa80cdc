"""Asks for typed answers through instructor, by a tool and by a schema; tells what came as JSON.

Argument: the URL.
"""

import json
import sys

import instructor
import openai
from pydantic import BaseModel, Field

MODEL = "arriero-demo"


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


def main() -> None:
    [url] = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    question = {"role": "user", "content": "What is a slot?"}
    asked = {"model": MODEL, "messages": [question], "temperature": 0, "max_tokens": 200}
    facts = [
        instructor.from_openai(client, mode=mode).chat.completions.create(
            **asked, response_model=Fact, max_retries=0
        )
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA)
    ]
    answer = client.chat.completions.create(**asked)
    told = {"answer": answer.choices[0].message.content, "fact": facts[0].model_dump()}
    sys.stdout.write(json.dumps(told) + "\n")


main()
