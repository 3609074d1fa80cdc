"""Stored prompts (`save_cache`) and context shifts (`n_discard`)."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arriero.agent.engine.capacity import BLOCK
from integration_tests.corpus import ENDLESS, LONG_CONTEXT, Answer, generate
from integration_tests.daemons import MODEL, Fleet
from integration_tests.shared_fleets import SharedFleets

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
    return sorted(folder.glob("*.prompt"))


class TestStored:
    async def test_what_was_saved_is_not_computed_again_by_the_next_agent(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        first = await bare_fleet.start_agent(cache_dir=tmp_path)
        saved = await ask(bare_fleet, cache_key="road", save_cache=True)
        assert usage(saved)["cached_tokens"] == 0
        assert len(files(tmp_path)) == 1, "it is there as soon as the end was told"
        assert await first.terminate() == 0

        await bare_fleet.start_agent(cache_dir=tmp_path)
        again = await ask(bare_fleet, cache_key="road")
        assert usage(again)["cached_tokens"] == usage(again)["prompt_tokens"] - 1
        assert again.text == saved.text != ""
        assert warnings(saved) == warnings(again) == []

    async def test_a_further_turn_goes_on_from_an_answer_that_a_stop_string_ended(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        first = await bare_fleet.start_agent(cache_dir=tmp_path)
        whole = await ask(bare_fleet)
        stop = whole.text[len(whole.text) // 2 :][:6]
        saved = await ask(bare_fleet, cache_key="road", save_cache=True, stop=[stop])
        assert saved.text == whole.text[: whole.text.index(stop)]
        await first.terminate()

        await bare_fleet.start_agent(cache_dir=tmp_path)
        further = await ask(bare_fleet, cache_key="road", prompt=PROMPT + saved.text + " and then?")
        assert usage(further)["cached_tokens"] >= usage(saved)["prompt_tokens"]

    async def test_without_a_folder_keys_are_refused(self, shared_fleet: Fleet) -> None:
        answer = await ask(shared_fleet, cache_key="road")
        assert answer.end["error"]["code"] == "not_supported"
        assert "--cache-dir" in answer.end["error"]["message"]

    async def test_two_writers_of_one_key_in_a_batch_are_refused_at_the_door(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        await bare_fleet.start_agent(cache_dir=tmp_path)
        request = ASK | {"cache_key": "road", "save_cache": True}
        url = f"{bare_fleet.inference}/api/v1/generate_batch"
        async with bare_fleet.http.post(url, json={"requests": [request, request]}) as response:
            assert response.status == 400
            assert (await response.json())["error"]["field"] == "requests[1].save_cache"
        assert files(tmp_path) == []

    async def test_a_second_writer_is_refused_as_long_as_the_first_runs(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        steady = {"ARRIERO_PACE_STEPS": "100"}  # so that the first one does not come to its end
        await bare_fleet.start_agent(cache_dir=tmp_path, context_size=LONG_CONTEXT, env=steady)
        body = ENDLESS | {"cache_key": "road", "save_cache": True}
        running = asyncio.create_task(generate(bare_fleet.http, bare_fleet.inference, body))
        await bare_fleet.until_num_requests(1, "streaming")
        second = await ask(bare_fleet, cache_key="road", save_cache=True)
        assert second.end["error"]["code"] == "invalid_request"
        assert second.end["error"]["field"] == "save_cache"
        assert usage(await ask(bare_fleet, cache_key="road"))["completion_tokens"] > 0

        running.cancel()
        await bare_fleet.until_idle()
        assert files(tmp_path) == [], "what was cancelled is not saved"
        assert (await ask(bare_fleet, cache_key="road", save_cache=True)).end["event"] == "done"
        assert len(files(tmp_path)) == 1

    async def test_files_that_are_no_good_are_warnings(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        first = await bare_fleet.start_agent(cache_dir=tmp_path)
        saved = await ask(bare_fleet, cache_key="torn", save_cache=True)
        (torn,) = files(tmp_path)
        await ask(bare_fleet, cache_key="foreign", save_cache=True)
        (foreign,) = set(files(tmp_path)) - {torn}
        await first.terminate()
        torn.write_bytes(torn.read_bytes()[:-100])
        foreign.write_bytes(b"GGUF" * 1000)
        await bare_fleet.start_agent(cache_dir=tmp_path)
        again = await ask(bare_fleet, cache_key="torn")
        assert usage(again)["cached_tokens"] in (0, BLOCK), "what the disk tier has, and no more"
        assert again.text == saved.text
        self.check_ignored(again, torn)
        self.check_ignored(await ask(bare_fleet, cache_key="foreign"), foreign)

    async def test_a_file_of_another_model_or_another_type_of_cache_is_a_warning(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        folder, model = tmp_path / "cache", tmp_path / "other.gguf"
        first = await bare_fleet.start_agent(cache_dir=folder)
        saved = await ask(bare_fleet, cache_key="road", save_cache=True)
        await first.terminate()
        (path,) = files(folder)
        shutil.copy(MODEL, model)
        model.write_bytes(model.read_bytes() + b"another")
        other = await bare_fleet.start_agent(cache_dir=folder, model=model)
        again = await ask(bare_fleet, cache_key="road")
        self.check_ignored(again, path)
        assert usage(again)["cached_tokens"] == 0
        assert again.text == saved.text
        await other.terminate()
        await bare_fleet.start_agent(cache_dir=folder, cache_type_k="q8_0", cache_type_v="q8_0")
        again = await ask(bare_fleet, cache_key="road")
        self.check_ignored(again, path)
        assert usage(again)["cached_tokens"] == 0

    def check_ignored(self, answer: Answer, path: Path) -> None:
        (warning,) = warnings(answer)
        assert warning["code"] == "prompt_cache"
        assert path.name in warning["message"] and "ignored" in warning["message"]

    async def test_the_folder_stays_within_its_limit(
        self, bare_fleet: Fleet, tmp_path: Path
    ) -> None:
        first = await bare_fleet.start_agent(cache_dir=tmp_path)
        await ask(bare_fleet, cache_key="measure", save_cache=True)
        limit = int(2.5 * files(tmp_path)[0].stat().st_size)
        await first.terminate()
        await bare_fleet.start_agent(cache_dir=tmp_path, cache_limit=limit)
        for number in range(4):
            answer = await ask(bare_fleet, cache_key=f"key {number}", save_cache=True)
            assert warnings(answer) == []
            assert sum(path.stat().st_size for path in files(tmp_path)) <= limit
        assert len(files(tmp_path)) == 2
        large = await ask(bare_fleet, prompt=PROMPT * 4, cache_key="large", save_cache=True)
        (warning,) = warnings(large)
        assert "--cache-limit" in warning["message"]
        assert large.end["event"] == "done"

    async def test_a_folder_that_cannot_be_one(self, bare_fleet: Fleet, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        agent = await bare_fleet.launch_agent(cache_dir=tmp_path / "file")
        assert await agent.exit_code() == 1
        assert any("--cache-dir" in line for line in agent.stderr)


async def test_a_prompt_that_is_only_computed_serves_the_next(shared_fleet: Fleet) -> None:
    prompt = "The driver rests while the mules drink. " * 12
    warmed = await ask(shared_fleet, prompt=prompt, prefill_only=True)
    assert [event["event"] for event in warmed.events] == ["done"]
    assert warmed.end["finish_reason"] == "stop"
    assert usage(warmed)["completion_tokens"] == 0
    answer = await ask(shared_fleet, prompt=prompt)
    assert usage(answer)["cached_tokens"] == usage(warmed)["prompt_tokens"] - 1
    assert usage(answer)["completion_tokens"] > 0


class TestShift:
    WINDOW = 64

    @pytest_asyncio.fixture(loop_scope="session")
    async def window(self, fleets: SharedFleets) -> Fleet:
        return await fleets.with_agent(context_size=self.WINDOW)

    async def endless(self, fleet: Fleet, **fields: Any) -> Answer:
        return await generate(fleet.http, fleet.inference, ENDLESS | fields)

    async def test_an_answer_goes_on_beyond_the_ceiling(self, window: Fleet) -> None:
        bounded = await self.endless(window, max_tokens=200)
        assert bounded.end["finish_reason"] == "length"
        assert sum(usage(bounded)[f"{kind}_tokens"] for kind in ("prompt", "completion")) == 64

        shifted = await self.endless(window, max_tokens=200, n_discard=16)
        assert shifted.end["finish_reason"] == "length"
        assert usage(shifted)["completion_tokens"] == 200
        assert shifted.text.startswith(bounded.text)
        assert warnings(shifted) == []

    async def test_more_than_can_go_is_clamped_with_a_warning(self, window: Fleet) -> None:
        answer = await self.endless(window, max_tokens=100, n_discard=10_000)
        assert [warning["code"] for warning in warnings(answer)] == ["n_discard_clamped"]
        assert usage(answer)["completion_tokens"] == 100

    async def test_a_prompt_longer_than_the_window_is_read(self, window: Fleet) -> None:
        refused = await ask(window)
        assert refused.end["error"]["code"] == "prompt_too_long"
        answer = await ask(window, n_discard=16, ignore_eos=True)
        assert [warning["code"] for warning in warnings(answer)] == ["prompt_shifted"]
        assert usage(answer)["prompt_tokens"] > self.WINDOW
        assert usage(answer)["completion_tokens"] == ASK["max_tokens"]
