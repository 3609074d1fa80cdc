"""Embeddings, reranking and tokens, through the real daemons, beside generation."""

import asyncio
import base64
import math
import signal
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import gguf
import openai
import pytest
import pytest_asyncio

from arriero.agent.engine.embedding.embedder import LEAST_CHUNK
from integration_tests.corpus import UNENDING
from integration_tests.daemons import DEADLINE, Fleet, until
from tests.agent.engine.llama.encoders import write_encoder

MODEL = "arriero-demo"
TEXTS = ["What is a slot?", "Why do agents dial in?", "queue"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mixed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """An agent that generates, one that only embeds, one that ranks."""
    folder = tmp_path_factory.mktemp("models")
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer()
        await fleet.start_agent()
        for name, pooling in (("encoder", gguf.PoolingType.CLS), ("ranker", gguf.PoolingType.RANK)):
            path = write_encoder(Path(folder) / f"{name}.gguf", pooling=pooling)
            await fleet.start_agent(model=path)
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(mixed: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{mixed.inference}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


async def post(fleet: Fleet, path: str, **body: Any) -> tuple[int, Any]:
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as response:
        return response.status, await response.json()


async def embed(fleet: Fleet, **body: Any) -> Any:
    status, answer = await post(fleet, "/api/v1/embed", **{"model": MODEL, **body})
    assert status == 200, answer
    return answer


async def rows(fleet: Fleet, given: Any, **options: Any) -> list[list[float]]:
    answer = await embed(fleet, input=given, normalize="none", **options)
    return [each["embedding"] for each in answer["embeddings"]]


async def vectors(client: openai.AsyncOpenAI, given: Any, **options: Any) -> list[list[float]]:
    answer = await client.embeddings.create(model=MODEL, input=given, **options)
    assert [each.index for each in answer.data] == list(range(len(answer.data)))
    return [each.embedding for each in answer.data]


class TestOpenAI:
    async def test_a_text_and_a_list_of_texts(self, client: openai.AsyncOpenAI) -> None:
        one = await vectors(client, TEXTS[0])
        several = await vectors(client, TEXTS)
        assert len(several) == 3
        assert several[0] == pytest.approx(one[0], abs=1e-5)
        assert math.sqrt(sum(x * x for x in one[0])) == pytest.approx(1, abs=1e-5)
        assert several[1] != pytest.approx(several[2], abs=1e-2)

    async def test_tokens_are_worth_their_text(
        self, mixed: Fleet, client: openai.AsyncOpenAI
    ) -> None:
        _, told = await post(
            mixed, "/api/v1/tokenize", model=MODEL, text=TEXTS[0], add_special=True
        )
        [text] = await vectors(client, TEXTS[0])
        [ids] = await vectors(client, told["tokens"])
        both = await vectors(client, [told["tokens"], told["tokens"]])
        assert ids == pytest.approx(text, abs=1e-5)
        assert len(both) == 2

    async def test_base64_and_numbers_are_the_same(
        self, mixed: Fleet, client: openai.AsyncOpenAI
    ) -> None:
        body = {"model": MODEL, "input": TEXTS[0], "encoding_format": "base64"}
        _, answer = await post(mixed, "/v1/embeddings", **body)
        data = base64.b64decode(answer["data"][0]["embedding"])
        [numbers] = await vectors(client, TEXTS[0], encoding_format="float")
        assert struct.unpack(f"<{len(data) // 4}f", data) == pytest.approx(numbers, abs=1e-6)

    async def test_dimensions(self, client: openai.AsyncOpenAI) -> None:
        [whole] = await vectors(client, TEXTS[0])
        [short] = await vectors(client, TEXTS[0], dimensions=8)
        length = math.sqrt(sum(x * x for x in whole[:8]))
        assert short == pytest.approx([x / length for x in whole[:8]], abs=1e-5)
        with pytest.raises(openai.BadRequestError) as caught:
            await vectors(client, TEXTS[0], dimensions=9999)
        assert caught.value.body is not None
        assert caught.value.body["param"] == "dimensions"  # type: ignore[index]

    async def test_usage(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.embeddings.create(model=MODEL, input=[[1, 2, 3], [4, 5]])
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (5, 5)
        assert answer.model == MODEL

    async def test_one_that_is_too_long_fails_the_call(self, client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await vectors(client, ["short", "x" * 9000])
        assert caught.value.code == "context_length_exceeded"
        assert "`input[1]`: prompt is too long: 9000 tokens > 1024" in str(caught.value)

    async def test_a_model_that_only_embeds(self, client: openai.AsyncOpenAI) -> None:
        answer = await client.embeddings.create(model="encoder", input="once upon a time")
        assert len(answer.data[0].embedding) == 32
        with pytest.raises(openai.BadRequestError, match="cannot generate text"):
            await client.completions.create(model="encoder", prompt="once")
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="nobody", input="once")

    async def test_models_say_what_they_can_do(self, client: openai.AsyncOpenAI) -> None:
        tasks = {
            model.id: model.model_extra and model.model_extra["tasks"]
            async for model in client.models.list()
        }
        assert tasks == {
            MODEL: ["generate", "embed"],
            "encoder": ["embed"],
            "ranker": ["embed", "rank"],
        }


class TestNative:
    async def test_one_oversized_input_leaves_the_others_alone(self, mixed: Fleet) -> None:
        answer = await embed(mixed, input=["once", "x" * 9000, "twice"])
        first, second, third = answer["embeddings"]
        assert second["index"] == 1
        assert second["error"]["code"] == "prompt_too_long"
        assert len(first["embedding"]) == len(third["embedding"]) == 256
        assert answer["usage"]["prompt_tokens"] == first["num_tokens"] + third["num_tokens"]

    @pytest.mark.parametrize(("norm", "length"), [("l2", 1.0), ("rms", 16.0)])
    async def test_norms(self, mixed: Fleet, norm: str, length: float) -> None:
        [one] = (await embed(mixed, input="once", normalize=norm))["embeddings"]
        assert math.sqrt(sum(x * x for x in one["embedding"])) == pytest.approx(length, abs=1e-4)

    async def test_poolings_differ_and_what_the_model_lacks_is_refused(self, mixed: Fleet) -> None:
        found = [
            (await embed(mixed, input="once upon", pooling=pooling))["embeddings"][0]["embedding"]
            for pooling in ("mean", "cls", "last")
        ]
        assert found[0] != found[1] != found[2]
        status, answer = await post(
            mixed, "/api/v1/embed", model=MODEL, input="once", pooling="rank"
        )
        assert (status, answer["error"]["field"]) == (400, "pooling")

    async def test_the_mean_of_an_input_in_chunks_is_that_of_its_tokens(self, mixed: Fleet) -> None:
        """The vector of a token is the last of the prefix that ends with it."""
        _, told = await post(mixed, "/api/v1/tokenize", model=MODEL, text=" ".join(TEXTS) * 4)
        tokens = told["tokens"]
        assert len(tokens) > 3 * LEAST_CHUNK, "a first chunk and more"
        prefixes = [tokens[:end] for end in range(1, len(tokens) + 1)]
        [whole] = await rows(mixed, [tokens], pooling="mean")
        lasts = await rows(mixed, prefixes, pooling="last")
        mean = [sum(values) / len(values) for values in zip(*lasts, strict=True)]
        assert math.dist(whole, mean) < 0.01 * math.hypot(*mean)

    async def test_tokens_there_and_back(self, mixed: Fleet) -> None:
        text = "Grüße from the mountains \N{LLAMA}"
        _, told = await post(mixed, "/api/v1/tokenize", model=MODEL, text=text)
        assert told["num_tokens"] == len(told["tokens"])
        _, back = await post(mixed, "/api/v1/detokenize", model=MODEL, tokens=told["tokens"])
        assert back["text"] == text and "bytes" not in back

    async def test_a_part_of_a_character(self, mixed: Fleet) -> None:
        rare = "\N{EGYPTIAN HIEROGLYPH A001}"
        _, told = await post(mixed, "/api/v1/tokenize", model=MODEL, text=rare)
        _, part = await post(mixed, "/api/v1/detokenize", model=MODEL, tokens=told["tokens"][-1:])
        data = base64.b64decode(part["bytes"])
        assert rare.encode().endswith(data) and len(data) < 4
        assert part["text"] == data.decode(errors="replace")

    async def test_counts_are_those_of_the_prompt(self, mixed: Fleet) -> None:
        messages = [{"role": "user", "content": TEXTS[0]}]
        _, counted = await post(mixed, "/api/v1/count_tokens", model=MODEL, messages=messages)
        _, answered = await post(
            mixed, "/api/v1/generate", model=MODEL, messages=messages, max_tokens=1, stream=False
        )
        assert counted["num_tokens"] == answered["usage"]["prompt_tokens"]
        tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
        _, more = await post(
            mixed, "/api/v1/count_tokens", model=MODEL, messages=messages, tools=tools
        )
        assert more["num_tokens"] > counted["num_tokens"]

    async def test_over_the_socket(self, mixed: Fleet) -> None:
        async with mixed.http.ws_connect(f"{mixed.inference}/api/v1/socket") as socket:
            params = {"model": "encoder", "input": ["once", "upon"]}
            await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "embed", "params": params})
            answer = await socket.receive_json()
            assert answer["id"] == 1
            assert [each["index"] for each in answer["result"]["embeddings"]] == [0, 1]
            await socket.send_json(
                {"jsonrpc": "2.0", "id": 2, "method": "tokenize", "params": {"text": 7}}
            )
            assert (await socket.receive_json())["error"]["data"]["field"] == "text"


class TestRerank:
    DOCUMENTS = ["alpaca", "llama queue", "once upon a time"]

    async def test_documents_by_their_score(self, mixed: Fleet) -> None:
        status, answer = await post(
            mixed,
            "/v1/rerank",
            model="ranker",
            query="llama",
            documents=self.DOCUMENTS,
            return_documents=True,
        )
        assert status == 200
        scores = [each["relevance_score"] for each in answer["results"]]
        assert scores == sorted(scores, reverse=True)
        assert {each["index"] for each in answer["results"]} == {0, 1, 2}
        for each in answer["results"]:
            assert each["document"] == {"text": self.DOCUMENTS[each["index"]]}
        assert answer["usage"]["prompt_tokens"] > 0

    async def test_only_the_best(self, mixed: Fleet) -> None:
        body = {"model": "ranker", "query": "llama", "documents": self.DOCUMENTS}
        _, everything = await post(mixed, "/v1/rerank", **body)
        _, best = await post(mixed, "/v1/rerank", **body, top_n=1)
        assert best["results"] == everything["results"][:1]

    async def test_a_model_that_does_not_rank(self, mixed: Fleet) -> None:
        status, answer = await post(
            mixed, "/v1/rerank", model=MODEL, query="llama", documents=["x"]
        )
        assert status == 400
        assert answer["error"]["message"] == f"the model `{MODEL}` cannot rank documents"


async def test_embeddings_beside_running_streams(mixed: Fleet, client: openai.AsyncOpenAI) -> None:
    """With every slot taken, streams go on while vectors and tokens are asked for."""
    num_pieces = [0] * 4

    async def read(number: int) -> None:
        url = f"{mixed.inference}/api/v1/generate"
        async with mixed.http.post(url, json=UNENDING | {"model": MODEL}) as response:
            async for _ in response.content:
                num_pieces[number] += 1

    readers = [asyncio.create_task(read(number)) for number in range(4)]
    try:
        await mixed.until_num_requests(4, "streaming")
        before = list(num_pieces)

        async def all_go_on() -> bool:
            assert len(await vectors(client, TEXTS * 8)) == 24
            status, _ = await post(mixed, "/api/v1/tokenize", model=MODEL, text="once")
            assert status == 200
            return all(now > then + 100 for now, then in zip(num_pieces, before, strict=True))

        await until(all_go_on)
        assert not any(reader.done() for reader in readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    await mixed.until_idle()


async def test_a_batch_is_shared_and_outlives_an_agent() -> None:
    """Two agents share a batch; one is killed in the middle, and every vector is still right.

    With the last one killed, too, the call ends with one error. Nothing of either is left behind.
    """
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(buffered_request_timeout="6s")
        agents = [await fleet.start_agent() for _ in range(2)]
        inputs = [f"{number}: " + "why do agents dial in? " * 24 for number in range(64)]
        await fleet.hold()
        call = asyncio.create_task(embed(fleet, input=inputs, encoding="base64"))
        await fleet.until_metrics(arriero_query_parts_asked=4)
        agents[0].signal_all(signal.SIGKILL)
        await agents[1].pace.let_go()
        answer = await call
        assert [each["index"] for each in answer["embeddings"]] == list(range(64))
        ends = [0, 1, 32, 62, 63]
        [*alone] = (await embed(fleet, input=[inputs[n] for n in ends]))["embeddings"]
        for number, one in zip(ends, alone, strict=True):
            data = base64.b64decode(answer["embeddings"][number]["embedding"])
            together = struct.unpack(f"<{len(data) // 4}f", data)
            assert together == pytest.approx(one["embedding"], abs=1e-3)
        await nothing_is_left(fleet)

        await agents[1].pace.hold()
        lost = asyncio.create_task(post(fleet, "/api/v1/embed", input=inputs))
        await fleet.until_metrics(arriero_query_parts_asked=2)
        agents[1].signal_all(signal.SIGKILL)
        status, answer = await lost
        assert (status, answer["error"]["code"]) == (504, "queue_timeout")
        await nothing_is_left(fleet)


async def nothing_is_left(fleet: Fleet) -> None:
    await fleet.until_idle()
    await fleet.until_metrics(
        arriero_query_parts_asked=0, arriero_query_parts_waiting=0, arriero_queue_depth=0
    )
