"""Vectors of a model with real weights, through the daemons, against its own arithmetic."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import numpy as np
import ollama
import openai
import pytest
import pytest_asyncio

from client_tests.bert import Bert
from client_tests.packaged_model import minilm
from integration_tests.daemons import Fleet

TEXTS = [
    "What is a slot?",
    "A place for one running sequence.",
    "Llamas cross the mountains in a long train.",
    "A caravan of pack animals goes over the pass.",
    "The exchange rate of the euro fell.",
    "Où est la bibliothèque? Über den Köpfen; naïve façade.",
    "数据库 and 東京",
    "unbelievableness antidisestablishmentarianism xqzzyv",
    "e-mail: somebody@example.org, $5.00 (50 %) & more...",
    "x" * 60 + " is one word",
    "one two three four five " * 20,
]
"""Without words of more than 100 characters: unknown to the original, to llama.cpp many pieces."""
NEAR, ALSO_NEAR, FAR = 2, 3, 4
MODEL = "minilm"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def bert() -> Bert:
    return Bert.read(minilm())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedding(bert: Bert, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    path = bert.write_gguf(tmp_path_factory.mktemp("models") / f"{MODEL}.gguf")
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent(model=path, context_size=512)
        yield fleet


async def test_vectors_are_the_models_own(embedding: Fleet, bert: Bert) -> None:
    own = np.stack([bert.vector(text) for text in TEXTS])
    async with openai.AsyncOpenAI(
        base_url=f"{embedding.inference}/v1", api_key="none", max_retries=0
    ) as client:
        answer = await client.embeddings.create(model=MODEL, input=TEXTS)
    ours = np.array([each.embedding for each in answer.data])
    assert np.linalg.norm(ours, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-4)
    assert 1 - (ours * own).sum(axis=1) == pytest.approx(np.zeros(len(TEXTS)), abs=1e-3)
    assert answer.usage.prompt_tokens == sum(len(bert.tokens(text)) for text in TEXTS)
    similar = ours @ ours.T
    assert similar[NEAR, ALSO_NEAR] > similar[NEAR, FAR] + 0.2


async def test_ollamas_client_gets_the_same(embedding: Fleet, bert: Bert) -> None:
    client = ollama.AsyncClient(embedding.inference)
    answer = await client.embed(MODEL, TEXTS[0])
    assert np.dot(answer.embeddings[0], bert.vector(TEXTS[0])) == pytest.approx(1, abs=1e-3)
    shown = await client.show(MODEL)
    assert shown.capabilities == ["embedding"]
    assert shown.details is not None
    assert (shown.details.family, shown.details.parameter_size) == ("bert", "22.57M")
    await client.close()
