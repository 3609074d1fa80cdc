"""What every side of the port promises, shown with the local one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.agent.generation.local_generation import LocalGeneration, PromptSaver
from arriero.agent.generation.port import Generation
from arriero.agent.generation.preparation import Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.sequence_id import SequenceId
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import GenerateRequest
from arriero.shared.messages import Ended, Refused, Start
from tests.agent.fakes import FakeWorker, byte_model
from tests.agent.generation.outputs import ONE, Heard, R

ENDS: dict[str, Callable[[Generation], None]] = {
    "cancel": lambda generation: generation.cancel(ONE),
    "fail": lambda generation: generation.fail(ONE, EngineFailed("gone")),
    "discard": lambda generation: generation.discard(ONE),
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
    generation.start(ONE, Start(id=R, request=GenerateRequest(prompt="x")), heard)
    sequence = await worker.added.get()
    ENDS[first](generation)
    ENDS[second](generation)
    worker.say(sequence, "late", is_last=True)
    assert heard.released == [SequenceId(1)]
    ends = [item for item in heard.items if isinstance(item, Ended | Refused)]
    assert len(ends) == len(heard.items) == (first != "discard")
    local.close()
