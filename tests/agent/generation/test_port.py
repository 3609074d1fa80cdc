"""What every side of the port promises, shown with the local one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.agent.generation.local_generation import LocalGeneration
from arriero.agent.generation.port import Generation, NewRequest, Ticket
from arriero.agent.generation.preparation import Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.prompt_saver import PromptSaver
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import GenerateRequest
from arriero.shared.messages import Ended, Refused
from tests.agent.fakes import FakeWorker, byte_model
from tests.agent.generation.outputs import FIRST, Heard, R

ENDS: dict[str, Callable[[Generation], None]] = {
    "cancel": lambda generation: generation.cancel(FIRST),
    "fail": lambda generation: generation.fail(FIRST, EngineFailed("gone")),
    "discard": lambda generation: generation.discard(FIRST),
}


@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("second", ENDS)
async def test_a_request_ends_once_and_is_released_once(first: str, second: str) -> None:
    heard, worker = Heard(), FakeWorker(Path("m.gguf"))
    model = byte_model()
    local = LocalGeneration(
        Preparation(Preparer(model, 16)), worker, PromptSaver(), model.vocab.piece
    )
    worker.on_step = local.stepped
    generation: Generation = local
    generation.start(NewRequest(FIRST, R, GenerateRequest(prompt="x")), heard)
    sequence = await worker.added.get()
    ENDS[first](generation)
    ENDS[second](generation)
    worker.say(sequence, "late", is_last=True)
    assert heard.released == [Ticket(1)]
    ends = [item for item in heard.items if isinstance(item, Ended | Refused)]
    assert len(ends) == len(heard.items) == (first != "discard")
    local.close()
