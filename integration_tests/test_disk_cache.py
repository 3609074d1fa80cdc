"""Prefixes on disk (`--cache-dir`), without a key: over restarts, agents and callers."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from arriero.agent.engine.capacity import BLOCK
from arriero.balancer.access.access_key import new_key
from arriero.client import Client
from bench.small_models import write
from integration_tests.corpus import Answer, generate
from integration_tests.daemons import Daemon, Fleet, until

STORY = "The driver counts the mules, the bells and the bags of salt before each bridge. "
ASK: dict[str, Any] = {"prompt": STORY * 80, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
BRANCH = {"prompt": STORY * 40 + "And then it rains on the mules and on the salt. " * 60}
SIZES: dict[str, object] = {"context_size": 8192, "slots": 2}
ADMIN = new_key(b"a" * 32)


async def ask(fleet: Fleet, **fields: Any) -> Answer:
    answer = await generate(fleet.http, fleet.inference, ASK | fields)
    assert answer.end["event"] == "done", answer.end
    return answer


def cached(answer: Answer) -> int:
    return int(answer.end["usage"]["cached_tokens"])


def whole_blocks(answer: Answer) -> int:
    """Those that are computed when it has ended: all of its tokens but the last one."""
    usage = answer.end["usage"]
    return int(usage["prompt_tokens"] + usage["completion_tokens"] - 1) // BLOCK


def blocks(folder: Path) -> list[Path]:
    return list(folder.glob("*.block"))


async def until_written(folder: Path, num: int) -> None:
    async def reached() -> bool:
        return len(blocks(folder)) == num

    await until(reached)


async def until_alone(fleet: Fleet, name: str) -> None:
    """Waits until the balancer knows that this agent is the only one."""

    async def is_alone() -> bool:
        return [agent["name"] for agent in await fleet.view("agents")] == [name]

    await until(is_alone)


async def until_read(fleet: Fleet) -> None:
    """Waits until the only agent has said that it read something."""

    async def has_read() -> bool:
        (agent,) = await fleet.view("agents")
        said = agent["statistics"]
        return said is not None and said["disk_cache"]["read_tokens_total"] > 0

    await until(has_read)


async def kill(agent: Daemon) -> None:
    """As when the whole host stops."""
    agent.signal_all(signal.SIGKILL)
    await agent.exit_code()


async def test_a_conversation_goes_on_after_a_kill_and_on_another_agent(
    fleet: Fleet, tmp_path: Path
) -> None:
    await fleet.start_balancer()
    first = await fleet.start_agent(name="one", cache_dir=tmp_path, **SIZES)
    turn = await ask(fleet)
    assert cached(turn) == 0
    assert whole_blocks(turn) >= 3
    branch = await ask(fleet, **BRANCH)
    num_shared = cached(branch) // BLOCK
    assert 1 <= num_shared < whole_blocks(branch) - 1
    await until_written(tmp_path, whole_blocks(turn) + whole_blocks(branch) - num_shared)
    further = {"prompt": ASK["prompt"] + turn.text + " and then the mules of the next town?"}

    other = await fleet.start_agent(name="two", cache_dir=tmp_path, **SIZES)
    await kill(first)
    await until_alone(fleet, "two")
    again = await ask(fleet, **further)
    assert cached(again) >= BLOCK * (whole_blocks(turn) - 1), "the answer may be read otherwise"
    same = await ask(fleet, **BRANCH)
    assert cached(same) >= BLOCK * (whole_blocks(branch) - 1)
    # Only its rest is read: memory has the beginning.
    num_read = cached(again) // BLOCK + whole_blocks(branch) - num_shared
    reads = 'arriero_agent_disk_cache_reads_total{agent="two",outcome="%s"}'
    await fleet.until_metrics(**{reads % "failed": 0.0, reads % "read": float(num_read)})

    await fleet.start_agent(name="one", cache_dir=tmp_path, **SIZES)
    assert await other.terminate() == 0
    await until_alone(fleet, "one")
    assert cached(await ask(fleet, **further)) >= cached(again)
    await until_read(fleet)


async def test_where_sequences_begin_at_checkpoints_alone_a_conversation_goes_on_too(
    fleet: Fleet, tmp_path: Path
) -> None:
    model, folder = write("qwen35", tmp_path / "qwen35.gguf"), tmp_path / "cache"
    sizes: dict[str, object] = {"model": model, "cache_dir": folder, "context_size": 4096}
    await fleet.start_balancer()
    first = await fleet.start_agent(**sizes)
    prompt = (STORY * 80).strip()
    turn = await ask(fleet, prompt=prompt)

    async def is_written() -> bool:
        return bool(list(folder.glob("*.checkpoint")))

    await until(is_written)
    await kill(first)
    await fleet.start_agent(name="two", **sizes)
    await until_alone(fleet, "two")
    num_tokens = turn.end["usage"]["prompt_tokens"]
    further = await ask(fleet, prompt=f"{prompt} {turn.text}")
    assert cached(further) >= num_tokens - 1
    read = 'arriero_agent_disk_cache_read_tokens_total{agent="two"}'
    await fleet.until_metrics(**{read: float(cached(further))})
    again = await ask(fleet, prompt=prompt)
    assert (cached(again), again.text) == (num_tokens - 1, turn.text)


async def test_damaged_files_are_computed_again(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start_balancer()
    first = await fleet.start_agent(cache_dir=tmp_path, **SIZES)
    turn = await ask(fleet)
    await until_written(tmp_path, whole_blocks(turn))
    await kill(first)
    for path in blocks(tmp_path):
        path.write_bytes(path.read_bytes()[:-100])
    (tmp_path / "left.part").write_bytes(b"half")
    second = await fleet.start_agent(cache_dir=tmp_path, **SIZES)
    assert not (tmp_path / "left.part").exists()
    await until_alone(fleet, second.ready["name"])
    again = await ask(fleet)
    assert (cached(again), again.text) == (0, turn.text)
    assert [event for event in again.events if event["event"] == "warning"] == []
    assert sum("checksum" in line or "damaged" in line for line in second.stderr) == 1


async def test_callers_with_different_keys_do_not_find_each_others(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    (tmp_path / "admin.key").write_text(ADMIN)
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack)
        await fleet.open_client()
        await fleet.start_balancer(admin_key_file=tmp_path / "admin.key")
        async with Client(management=fleet.management, key=ADMIN) as client:
            made = {
                name: (await client.management.create_key(name, role))["key"]
                for name, role in (("rack", "agent"), *((name, "inference") for name in "abc"))
            }

        async def start() -> Daemon:
            return await fleet.start_agent(
                env={"ARRIERO_AGENT_KEY": made["rack"]},
                cache_dir=folder,
                cache_scope="key",
                **SIZES,
            )

        async def num_cached(name: str) -> int:
            headers = {"Authorization": f"Bearer {made[name]}"}
            body = ASK | {"stream": False}
            url = f"{fleet.inference}/api/v1/generate"
            async with fleet.http.post(url, json=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                answer = await response.json()
            num_blocks.append((answer["usage"]["prompt_tokens"] + 23) // BLOCK)
            return int(answer["usage"]["cached_tokens"])

        num_blocks: list[int] = []
        agent = await start()
        assert await num_cached("a") == 0
        assert await num_cached("a") > 0
        assert await num_cached("b") == 0, "in memory"
        await until_written(folder, 2 * num_blocks[-1])
        await kill(agent)
        await start()
        assert await num_cached("c") == 0, "on disk"
        assert await num_cached("a") >= 3 * BLOCK
