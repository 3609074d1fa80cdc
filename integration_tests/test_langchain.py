"""LangChain's OpenAI bindings: an agent with tools, embeddings, a prompt that is too long."""

import json

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import DefaultAsyncHttpxClient

from integration_tests.corpus import Case, cases
from integration_tests.daemons import DEADLINE, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

MAX_TURNS = 4


def model_of(fleet: Fleet) -> ChatOpenAI:
    return ChatOpenAI(
        timeout=DEADLINE,
        model="arriero-demo",
        base_url=f"{fleet.inference}/v1",
        api_key="none",
        temperature=0,
        max_retries=0,
        stream_usage=True,
    )


def answered_with_a_tool() -> Case:
    """A case with a question, its tool call and the result; the answer follows."""
    return next(
        case
        for case in cases()
        if [message["role"] for message in case.body["messages"]] == ["user", "assistant", "tool"]
        and "tools" in case.body
        and case.answer
    )


def calls_of(message: AIMessage) -> list[tuple[str, object]]:
    return [(call["name"], call["args"]) for call in message.tool_calls]


async def test_an_agent_calls_its_tool_and_answers(shared_fleet: Fleet) -> None:
    case = answered_with_a_tool()
    question, called, result = case.body["messages"]
    agent = model_of(shared_fleet).bind_tools(case.body["tools"])
    messages: list[BaseMessage] = [HumanMessage(question["content"])]
    for _ in range(MAX_TURNS):
        said = await agent.ainvoke(messages)
        messages.append(said)
        if not said.tool_calls:
            break
        messages += [
            ToolMessage(result["content"], tool_call_id=call["id"]) for call in said.tool_calls
        ]
    first, last = messages[1], messages[-1]
    assert isinstance(first, AIMessage)
    wanted = called["tool_calls"][0]["function"]
    assert calls_of(first) == [(wanted["name"], json.loads(wanted["arguments"]))]
    assert first.response_metadata["finish_reason"] == "tool_calls"
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert last.content == case.answer
    assert isinstance(last, AIMessage)
    assert last.usage_metadata is not None
    assert last.usage_metadata["output_tokens"] > 0


async def test_the_same_call_streamed(shared_fleet: Fleet) -> None:
    case = answered_with_a_tool()
    question, called, _ = case.body["messages"]
    agent = model_of(shared_fleet).bind_tools(case.body["tools"])
    whole: BaseMessage | None = None
    async for chunk in agent.astream([HumanMessage(question["content"])]):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessage)
    wanted = called["tool_calls"][0]["function"]
    assert calls_of(whole) == [(wanted["name"], json.loads(wanted["arguments"]))]


async def test_documents_are_embedded(shared_fleet: Fleet) -> None:
    async with DefaultAsyncHttpxClient() as http:
        embeddings = OpenAIEmbeddings(
            model="arriero-demo",
            base_url=f"{shared_fleet.inference}/v1",
            api_key="none",
            check_embedding_ctx_length=False,
            http_async_client=http,
        )
        slots, llamas = await embeddings.aembed_documents(["What is a slot?", "A llama."])
        assert slots != llamas
        asked = await embeddings.aembed_query("What is a slot?")
        assert asked == pytest.approx(slots, abs=1e-3)


async def test_a_prompt_that_is_too_long_is_known_as_such(shared_fleet: Fleet) -> None:
    with pytest.raises(ContextOverflowError):
        await model_of(shared_fleet).ainvoke("llama " * 20_000)
