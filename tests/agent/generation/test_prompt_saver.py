import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest

from arriero.agent.engine.prompt_store.prompt_store import Ignored, PromptStore
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.generation.answers.prepared import Prepared
from arriero.agent.generation.answers.resumption import Outcome
from arriero.agent.generation.preparation import NUM_THREADS, Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.prompt_saver import PromptSaver
from arriero.shared.inference import GenerateRequest, Notice
from tests.agent.fakes import byte_model, soon
from tests.agent.generation.outputs import SAVED, a_store
from tests.waiting import HANGS


class FullStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        return Ignored(f"no room for {key}")


class BrokenStore(PromptStore):
    def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
        raise ValueError("a mistake of ours")


async def outcome_of_save(store_type: type[PromptStore], folder: Path) -> Notice | None:
    saver = PromptSaver(a_store(folder, store_type))
    replied: asyncio.Future[Notice | None] = asyncio.get_running_loop().create_future()
    saver.save("k", SAVED, replied.set_result)
    found = await soon(replied)
    saver.close()
    return found


async def test_a_prompt_is_stored(tmp_path: Path) -> None:
    assert await outcome_of_save(PromptStore, tmp_path) is None
    (_,) = await asyncio.to_thread(os.listdir, tmp_path)


async def test_a_prompt_that_cannot_be_stored_is_told(tmp_path: Path) -> None:
    assert await outcome_of_save(FullStore, tmp_path) == Notice("prompt_cache", "no room for k")


async def test_a_mistake_in_storing_is_logged_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        failure = await outcome_of_save(BrokenStore, tmp_path)
    assert failure is not None and "a mistake of ours" not in failure.message
    assert "a mistake of ours" in caplog.text


async def test_without_a_store_nothing_can_be_saved() -> None:
    with pytest.raises(RuntimeError, match="no store"):
        PromptSaver().save("k", SAVED, lambda _: None)


async def test_a_slow_disk_holds_up_no_preparation(tmp_path: Path) -> None:
    may_go_on = threading.Event()

    class SlowStore(PromptStore):
        def save(self, key: str, prompt: StoredPrompt) -> Ignored | None:
            assert may_go_on.wait(HANGS)
            return None

    saver, preparation = (
        PromptSaver(a_store(tmp_path, SlowStore)),
        Preparation(Preparer(byte_model(), 16)),
    )
    saved: asyncio.Queue[Notice | None] = asyncio.Queue()
    for number in range(NUM_THREADS + 1):
        saver.save(f"k{number}", SAVED, saved.put_nowait)
    prepared: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    preparation.prepare(SequenceId(1), GenerateRequest(prompt="x"), prepared.set_result)
    assert isinstance(await soon(prepared), Prepared)
    assert saved.empty()
    may_go_on.set()
    for _ in range(NUM_THREADS + 1):
        assert await soon(saved.get()) is None
    saver.close()
    preparation.close()
