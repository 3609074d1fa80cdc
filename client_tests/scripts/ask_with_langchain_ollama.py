"""Asks through LangChain's binding for Ollama; tells what came as JSON.

Arguments: the URL, a question, a question that is answered with a call, and its tools as JSON.
"""

import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings
from pydantic import BaseModel, Field

MODEL = "arriero-demo"


class Fact(BaseModel):
    subject: str = Field(max_length=20)
    is_true: bool


def main() -> None:
    url, question, calling, tools = sys.argv[1:]
    common: dict[str, Any] = {"model": MODEL, "base_url": url, "temperature": 0}
    model = ChatOllama(**common, num_predict=80, validate_model_on_init=True)
    thinking = ChatOllama(**common, reasoning=True)
    with_tools = model.bind_tools(json.loads(tools))
    call = with_tools.invoke(calling)
    results = [ToolMessage("4", tool_call_id=each["id"]) for each in call.tool_calls]
    whole = model.invoke(question)
    fact = model.with_structured_output(Fact).invoke(question)
    [vector] = OllamaEmbeddings(model=MODEL, base_url=url).embed_documents([question])
    told = {
        "answer": whole.content,
        "tokens": whole.usage_metadata["output_tokens"],
        "streamed": "".join(str(part.content) for part in model.stream(question)),
        "calls": [(each["name"], each["args"]) for each in call.tool_calls],
        "after": with_tools.invoke([HumanMessage(calling), call, *results]).content,
        "fact": fact.model_dump(),
        "thought": thinking.invoke(question).additional_kwargs["reasoning_content"],
        "width": len(vector),
    }
    json.dump(told, sys.stdout)


main()
