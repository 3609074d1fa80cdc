"""Stored prompts (`save_cache`) and context shifts (`n_discard`)."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, Answer, generate
from integration_tests.daemons import MODEL, Fleet

PROMPT = "The mules walk to the next town and the driver counts them. " * 12
ASK = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}


async def ask(fleet: Fleet, **fields: Any) -> Answer:
    return await generate(fleet.http, fleet.inference, ASK | fields)


def usage(answer: Answer) -> dict[str, int]:
    found: dict[str, int] = answer.end["usage"]
    return found


def warnings(answer: Answer) -> list[dict[str, str]]:
    return [event for event in answer.events if event["event"] == "warning"]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


class TestStored:
    async def test_what_was_saved_is_not_computed_again_by_the_next_agent(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        await fleet.start_balancer()
        first = await fleet.start_agent(cache_dir=tmp_path)
        saved = await ask(fleet, cache_key="road", save_cache=True)
        assert usage(saved)["cached_tokens"] == 0
        assert len(files(tmp_path)) == 1, "it is there as soon as the end was told"
        assert await first.terminate() == 0

        await fleet.start_agent(cache_dir=tmp_path)
        again = await ask(fleet, cache_key="road")
        assert usage(again)["cached_tokens"] == usage(again)["prompt_tokens"] - 1
        assert again.text == saved.text != ""
        assert warnings(saved) == warnings(again) == []

    async def test_a_further_turn_goes_on_from_an_answer_that_a_stop_string_ended(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        await fleet.start_balancer()
        first = await fleet.start_agent(cache_dir=tmp_path)
        whole = await ask(fleet)
        stop = whole.text[len(whole.text) // 2 :][:6]
        saved = await ask(fleet, cache_key="road", save_cache=True, stop=[stop])
        assert saved.text == whole.text[: whole.text.index(stop)]
        await first.terminate()

        await fleet.start_agent(cache_dir=tmp_path)
        further = await ask(fleet, cache_key="road", prompt=PROMPT + saved.text + " and then?")
        assert usage(further)["cached_tokens"] >= usage(saved)["prompt_tokens"]

    async def test_without_a_folder_keys_are_refused(self, fleet: Fleet) -> None:
        await fleet.start_balancer()
        await fleet.start_agent()
        answer = await ask(fleet, cache_key="road")
        assert answer.end["error"]["code"] == "not_supported"
        assert "--cache-dir" in answer.end["error"]["message"]

    async def test_two_writers_of_one_key_in_a_batch_are_refused_at_the_door(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        await fleet.start_balancer()
        await fleet.start_agent(cache_dir=tmp_path)
        request = ASK | {"cache_key": "road", "save_cache": True}
        url = f"{fleet.inference}/api/v1/generate_batch"
        async with fleet.http.post(url, json={"requests": [request, request]}) as response:
            assert response.status == 400
            assert (await response.json())["error"]["field"] == "requests[1].save_cache"
        assert files(tmp_path) == []

    async def test_a_second_writer_is_refused_as_long_as_the_first_runs(
        self, fleet: Fleet, tmp_path: Path
    ) -> None:
        await fleet.start_balancer()
        await fleet.start_agent(cache_dir=tmp_path, context_size=LONG_CONTEXT)
        body = ENDLESS | {"cache_key": "road", "save_cache": True}
        running = asyncio.create_task(generate(fleet.http, fleet.inference, body))
        await fleet.until_num_requests(1, "streaming")
        second = await ask(fleet, cache_key="road", save_cache=True)
        assert second.end["error"]["code"] == "invalid_request"
        assert second.end["error"]["field"] == "save_cache"
        assert usage(await ask(fleet, cache_key="road"))["completion_tokens"] > 0

        running.cancel()
        await fleet.until_idle()
        assert files(tmp_path) == [], "what was cancelled is not saved"
        assert (await ask(fleet, cache_key="road", save_cache=True)).end["event"] == "done"
        assert len(files(tmp_path)) == 1

    @pytest.mark.parametrize("damage", ["torn", "foreign", "another model's"])
    async def test_a_file_that_is_no_good_is_a_warning(
        self, fleet: Fleet, tmp_path: Path, damage: str
    ) -> None:
        folder, model = tmp_path / "cache", tmp_path / "other.gguf"
        await fleet.start_balancer()
        first = await fleet.start_agent(cache_dir=folder)
        saved = await ask(fleet, cache_key="road", save_cache=True)
        await first.terminate()
        (path,) = files(folder)
        shutil.copy(MODEL, model)
        match damage:
            case "torn":
                path.write_bytes(path.read_bytes()[:-100])
            case "foreign":
                path.write_bytes(b"GGUF" * 1000)
            case _:
                model.write_bytes(model.read_bytes() + b"another")

        await fleet.start_agent(cache_dir=folder, model=model)
        again = await ask(fleet, cache_key="road")
        (warning,) = warnings(again)
        assert warning["code"] == "prompt_cache"
        assert path.name in warning["message"] and "ignored" in warning["message"]
        assert usage(again)["cached_tokens"] == 0
        assert again.text == saved.text

    async def test_the_folder_stays_within_its_limit(self, fleet: Fleet, tmp_path: Path) -> None:
        await fleet.start_balancer()
        first = await fleet.start_agent(cache_dir=tmp_path)
        await ask(fleet, cache_key="measure", save_cache=True)
        limit = int(2.5 * files(tmp_path)[0].stat().st_size)
        await first.terminate()
        await fleet.start_agent(cache_dir=tmp_path, cache_limit=limit)
        for number in range(4):
            answer = await ask(fleet, cache_key=f"key {number}", save_cache=True)
            assert warnings(answer) == []
            assert sum(path.stat().st_size for path in files(tmp_path)) <= limit
        assert len(files(tmp_path)) == 2
        large = await ask(fleet, prompt=PROMPT * 4, cache_key="large", save_cache=True)
        (warning,) = warnings(large)
        assert "--cache-limit" in warning["message"]
        assert large.end["event"] == "done"

    async def test_a_folder_that_cannot_be_one(self, fleet: Fleet, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        await fleet.start_balancer()
        agent = await fleet.launch_agent(cache_dir=tmp_path / "file")
        assert await agent.exit_code() == 1
        assert any("--cache-dir" in line for line in agent.stderr)


async def test_a_prompt_that_is_only_computed_serves_the_next(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent()
    warmed = await ask(fleet, prefill_only=True)
    assert [event["event"] for event in warmed.events] == ["done"]
    assert warmed.end["finish_reason"] == "stop"
    assert usage(warmed)["completion_tokens"] == 0
    answer = await ask(fleet)
    assert usage(answer)["cached_tokens"] == usage(warmed)["prompt_tokens"] - 1
    assert usage(answer)["completion_tokens"] > 0


class TestShift:
    WINDOW = 64

    async def endless(self, fleet: Fleet, **fields: Any) -> Answer:
        return await generate(fleet.http, fleet.inference, ENDLESS | fields)

    async def test_an_answer_goes_on_beyond_the_ceiling(self, fleet: Fleet) -> None:
        await fleet.start_balancer()
        await fleet.start_agent(context_size=self.WINDOW)
        bounded = await self.endless(fleet, max_tokens=200)
        assert bounded.end["finish_reason"] == "length"
        assert sum(usage(bounded)[f"{kind}_tokens"] for kind in ("prompt", "completion")) == 64

        shifted = await self.endless(fleet, max_tokens=200, n_discard=16)
        assert shifted.end["finish_reason"] == "length"
        assert usage(shifted)["completion_tokens"] == 200
        assert shifted.text.startswith(bounded.text)
        assert warnings(shifted) == []

    async def test_more_than_can_go_is_clamped_with_a_warning(self, fleet: Fleet) -> None:
        await fleet.start_balancer()
        await fleet.start_agent(context_size=self.WINDOW)
        answer = await self.endless(fleet, max_tokens=100, n_discard=10_000)
        assert [warning["code"] for warning in warnings(answer)] == ["n_discard_clamped"]
        assert usage(answer)["completion_tokens"] == 100

    async def test_a_prompt_longer_than_the_window_is_read(self, fleet: Fleet) -> None:
        await fleet.start_balancer()
        await fleet.start_agent(context_size=self.WINDOW)
        refused = await ask(fleet)
        assert refused.end["error"]["code"] == "prompt_too_long"
        answer = await ask(fleet, n_discard=16, ignore_eos=True)
        assert [warning["code"] for warning in warnings(answer)] == ["prompt_shifted"]
        assert usage(answer)["prompt_tokens"] > self.WINDOW
        assert usage(answer)["completion_tokens"] == ASK["max_tokens"]
