"""An agent that forwards, to the balancer of another fleet: a fleet behind a fleet."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from arriero.agent.engine.pace import STEPS
from bench.peer import server_path
from integration_tests.corpus import CUT_ANYWHERE, LONG_CONTEXT
from integration_tests.counting_server import WORDS, CountingServer
from integration_tests.daemons import DEADLINE, MODEL, Fleet, own_port, until
from integration_tests.fleet_behind_fleet import Fleets, forwarding, post
from integration_tests.nobody_else_notices.bystander import bystander
from tests.agent.engine.llama.projectors import (
    HEARD_TOKENS,
    LLAVA_TOKENS,
    png,
    wav,
    write_llava,
    write_ultravox,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

HI = [{"role": "user", "content": "Hello, who are you?"}]
FIXED = {"messages": HI, "max_tokens": 12, "temperature": 0, "seed": 1}
ENDLESS = {"prompt": "One, two, three,", "ignore_eos": True, "max_tokens": 100_000}
SLOWLY = "200"
"""Steps a second of the engine: `ENDLESS` then outlasts any test, and no upstream goes on beyond a
ceiling."""
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder

EXTRAS = {"llama_cpp", "llguidance", "httpx2", "huggingface_hub", "PIL"}


class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in EXTRAS else super().find_spec(name, path, target)


sys.meta_path[:] = [Bare if each is PathFinder else each for each in sys.meta_path]
"""
"""Of a host where `pip install arriero` brought no extras, as Python's `sitecustomize`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleets]:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(WITHOUT_EXTRAS)
    bare = {"PYTHONPATH": str(folder)}
    async with AsyncExitStack() as stack:
        inner, outer = Fleet(stack), Fleet(stack)
        for fleet, env in ((inner, None), (outer, bare)):
            await fleet.open_client()
            await fleet.start_balancer(env=env)
        await inner.start_agent(context_size=LONG_CONTEXT, slots=4, env={STEPS: SLOWLY})
        agent = await forwarding(outer, inner.inference, env=bare)
        assert agent.ready["model"] == "arriero-demo"
        engine = await outer.launch_agent(env=bare)
        assert await engine.exit_code() == 1
        assert "pip install '.[agent]'" in "".join(engine.stderr)
        yield Fleets(inner, outer)


async def test_answers_are_those_of_the_server(fleets: Fleets) -> None:
    direct, forwarded = await fleets.both("/v1/chat/completions", FIXED)
    for name in ("choices", "model"):
        assert forwarded[name] == direct[name]
    counts = [each["usage"]["completion_tokens"] for each in (direct, forwarded)]
    assert counts == [12, 12]
    forced = {**FIXED, "max_tokens": 40, "tools": [TOOL], "tool_choice": "required"}
    direct, forwarded = await fleets.both("/v1/chat/completions", forced)
    calls = [each["choices"][0]["message"]["tool_calls"][0] for each in (direct, forwarded)]
    assert calls[0]["function"] == calls[1]["function"]
    direct, forwarded = await fleets.both("/api/v1/tokenize", {"text": "One, two"})
    assert direct["tokens"] == forwarded["tokens"]
    direct, forwarded = await fleets.both("/v1/embeddings", {"input": ["One"]})
    vectors = [each["data"][0]["embedding"] for each in (direct, forwarded)]
    assert vectors[1] == pytest.approx(vectors[0], abs=1e-5)
    [agent] = await fleets.outer.view("agents")
    assert agent["model"]["upstream"]["kind"] == "arriero"
    await until(lambda: has_counted(fleets.outer))


async def test_what_the_server_cannot_do_is_refused_by_name(fleets: Fleets) -> None:
    refused = await post(fleets.outer, "/api/v1/generate", {"prompt": "a", "n_discard": 4})
    assert refused["error"]["code"] == "not_supported"
    assert "`n_discard`" in refused["error"]["message"]


async def test_who_goes_away_is_cancelled_on_the_server_and_nobody_else_notices(
    fleets: Fleets,
) -> None:
    async with bystander(fleets.outer, ENDLESS):
        url = fleets.outer.inference + "/api/v1/generate"
        async with fleets.outer.http.post(url, json=ENDLESS) as response:
            await response.content.readline()
            await fleets.inner.until_num_requests(2, "streaming")
        await fleets.inner.until_num_requests(1, "streaming")
    await fleets.outer.until_idle()
    await fleets.inner.until_idle()


@pytest.mark.skipif(not server_path().is_file(), reason="`make bench-setup` has not run")
async def test_llama_server(fleets: Fleets) -> None:
    async with AsyncExitStack() as stack:
        guest = fleets.outer.guest(stack)
        port = str(own_port())
        command = (str(server_path()), "-m", str(MODEL), "--port", port, "--alias", "peer")
        server = await guest.start(*command, "-np", "2", "-t", "1", "--jinja")
        await server.until_line(server.stderr, "listening")
        await forwarding(guest, f"http://127.0.0.1:{port}")
        grammar = {"type": "gbnf", "grammar": 'root ::= "yes" | "no"'}
        asked = {"model": "peer", "prompt": "So?", "grammar": grammar, "stream": False}
        answer = await post(guest, "/api/v1/generate", asked)
        assert answer.get("text") in ("yes", "no"), answer
        assert answer["usage"]["completion_tokens"] > 0
        refused = await post(guest, "/v1/embeddings", {"model": "peer", "input": "a"})
        assert refused["error"]["param"] == "model"


async def counting(server: CountingServer, fleet: Fleet, name: str, **settings: object) -> None:
    """An agent that forwards to `server`."""
    await forwarding(fleet, server.url, name=name, **settings)
    await until(lambda: has_agent(fleet, name, slots=4))


async def test_pictures_and_sounds_go_through_both_fleets(fleets: Fleets, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        inner, outer = fleets.inner.guest(stack), fleets.outer.guest(stack)
        await inner.start_agent(projector=write_llava(tmp_path / "eyes.gguf"))
        await inner.start_agent(projector=write_ultravox(tmp_path / "ears.gguf"))
        await until(partial(has_senses, inner))
        await forwarding(outer, inner.inference, name="sensing")
        await until(partial(has_senses, outer))
        url = {"url": f"data:image/png;base64,{encoded(png(90, 60))}"}
        audio = {"data": encoded(wav(1.0)), "format": "wav"}
        seen = {"type": "image_url", "image_url": url}
        heard = {"type": "input_audio", "input_audio": audio}
        for part, num_tokens in ((seen, LLAVA_TOKENS), (heard, HEARD_TOKENS)):
            parts = [{"type": "text", "text": "What?"}, part]
            asked = {**FIXED, "messages": [{"role": "user", "content": parts}]}
            direct, forwarded = await fleets.both("/v1/chat/completions", asked)
            assert forwarded["choices"] == direct["choices"]
            assert forwarded["usage"]["prompt_tokens"] == direct["usage"]["prompt_tokens"]
            assert forwarded["usage"]["prompt_tokens"] > num_tokens


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


async def has_senses(fleet: Fleet) -> bool:
    models = [each["model"] or {} for each in await fleet.view("agents")]
    return {"vision", "audio"} <= {task for model in models for task in model.get("tasks", ())}


async def has_agent(fleet: Fleet, name: str, slots: int) -> bool:
    agents = await fleet.view("agents")
    return any((each["name"], each["slots"]["total"]) == (name, slots) for each in agents)


async def has_issue(fleet: Fleet, name: str, code: str) -> bool:
    agents = await fleet.view("agents")
    return any(each["name"] == name and code in str(each["issues"]) for each in agents)


COUNT = {"model": "m", "messages": HI, "max_tokens": 100}
"""To a `CountingServer`."""


async def test_an_answer_goes_on_at_another_server_and_pauses_are_kept(fleets: Fleets) -> None:
    async with (
        AsyncExitStack() as stack,
        CountingServer().serving() as one,
        CountingServer().serving() as two,
    ):
        guest = fleets.outer.guest(stack)
        servers = (one, two)
        for name, server in zip(("one", "two"), servers, strict=True):
            await counting(server, guest, name)
        for server in servers:
            server.breaks_after, server.given = 7, []
        answer = await post(guest, "/v1/chat/completions", COUNT)
        assert answer["choices"][0]["message"]["content"] == "".join(WORDS)
        assert answer["usage"] == {**answer["usage"], "prompt_tokens": 5, "completion_tokens": 20}
        given = sorted(each for server in servers for each in server.given if each)
        assert given == ["".join(WORDS[:7]), "".join(WORDS[:14])]

        for server in servers:
            server.breaks_after = None
        for name in ("one", "two"):
            await until(partial(has_agent, guest, name, slots=4))
        one.limit, one.retry_after = 1, "60"
        # None of the answers ends, so both servers are asked for four.
        one.may_end.clear()
        two.may_end.clear()
        asked = [asyncio.create_task(post(guest, "/v1/chat/completions", COUNT)) for _ in range(8)]
        await until(lambda: has_agent(guest, "one", slots=0))
        one.may_end.set()
        two.may_end.set()
        answers = await asyncio.wait_for(asyncio.gather(*asked), DEADLINE)
        texts = {each["choices"][0]["message"]["content"] for each in answers}
        assert texts == {"".join(WORDS)}, answers
        assert 1 <= one.num_refused <= 3, "those that were on the way"
        assert await has_issue(guest, "one", "upstream_limit")


async def test_a_server_that_refuses_the_key_at_first(fleets: Fleets) -> None:
    async with AsyncExitStack() as stack, CountingServer().serving() as server:
        guest = fleets.outer.guest(stack)
        server.models = [{**server.models[0], "id": "locked"}]
        server.status_of_posts = 401
        await forwarding(guest, server.url, name="locked", upstream_model="locked")
        await until(partial(has_issue, guest, "locked", "upstream_key"))
        server.status_of_posts = 200
        await until(partial(has_agent, guest, "locked", slots=4))
        answer = await post(guest, "/v1/chat/completions", {**COUNT, "model": "locked"})
        assert answer["usage"]["completion_tokens"] == 20


async def test_a_server_that_dies_and_comes_back(fleets: Fleets) -> None:
    """The last test of these: the inner fleet has another balancer afterwards.

    An answer in text goes on then; one to token ids cannot, and ends.
    """
    inner, outer = fleets.inner, fleets.outer
    url = outer.inference + "/api/v1/generate"
    ids = {**ENDLESS, "prompt": [5, 6, 7]}
    [engine] = inner.agents
    async with AsyncExitStack() as answers:
        await engine.pace.hand_out(100)
        goes_on = await answers.enter_async_context(outer.http.post(url, json=CUT_ANYWHERE))
        first = [await engine.pace.step_until(goes_on.content.readline()) for _ in range(20)]
        await engine.pace.hand_out(100)
        ends = await answers.enter_async_context(outer.http.post(url, json=ids))
        await ends.content.readline()
        await inner.balancer.close()
        await engine.pace.let_go()
        last = json.loads([line async for line in ends.content][-1])
        assert last["error"]["code"] == "agent_lost"
        assert "the upstream server at" in last["error"]["message"]
        await until(lambda: is_there(outer, slots=0))
        [agent] = await outer.view("agents")
        assert agent["issues"][0]["code"] == "upstream_unreachable"
        assert agent["state"] == "failed"
        url = f"{outer.inference}/v1/chat/completions"
        async with outer.http.post(url, json=FIXED) as refused:
            error = (await refused.json())["error"]
            assert (refused.status, error["code"]) == (503, "model_failed"), error
            assert "the upstream server at" in error["message"]
            assert int(refused.headers["Retry-After"]) > 0
        await outer.until_num_requests(1, "queued")
        await inner.restart_balancer()
        await until(partial(has_state, outer, "ready"))
        answer = await post(outer, "/v1/chat/completions", FIXED)
        assert answer.get("usage", {}).get("completion_tokens") == 12, answer
        lines = [json.loads(each) for each in [*first, *[line async for line in goes_on.content]]]
    end = lines[-1]
    assert (end["finish_reason"], end["usage"]["completion_tokens"]) == ("length", 400)
    assert end["timings"]["moves"] == 1
    direct = await post(inner, "/api/v1/generate", {**CUT_ANYWHERE, "stream": False})
    assert "".join(each.get("text", "") for each in lines[:-1]) == direct["text"]


async def has_counted(fleet: Fleet) -> bool:
    [agent] = await fleet.view("agents")
    return bool(agent["statistics"]["completion_tokens_total"] > 12)


async def has_state(fleet: Fleet, state: str) -> bool:
    return [agent["state"] for agent in await fleet.view("agents")] == [state]


async def is_there(fleet: Fleet, slots: int) -> bool:
    return [agent["slots"]["total"] for agent in await fleet.view("agents")] == [slots]
