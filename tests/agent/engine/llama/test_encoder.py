"""A model that cannot generate, as the worker sees it."""

from pathlib import Path

import gguf
import pytest

from arriero.agent.engine.embedding.embedder import Embedder
from arriero.agent.engine.llama.encoder import EncoderEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.step import Step
from arriero.agent.engine.worker import Worker
from arriero.shared.queries import Embed, Embedded
from tests.agent.engine.llama.encoders import write_encoder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "encoder.gguf", pooling=gguf.PoolingType.CLS)


def test_it_loads_and_says_what_it_can_do(path: Path) -> None:
    engine = load_engine(path, LoadOptions(slots=4, context_size=4096, threads=1, gpu_layers=0))
    assert isinstance(engine, EncoderEngine)
    info = engine.model.info
    assert (info.name, info.architecture, info.tasks) == ("encoder", "bert", ("embed",))
    assert info.context_size == 64, "what it was trained for"
    assert engine.model.embedding is not None
    assert engine.model.embedding.default_pooling == "cls"
    engine.free()


def test_sequences_never_come_to_it(path: Path) -> None:
    engine = load_engine(path, LoadOptions(slots=1, context_size=64, threads=1, gpu_layers=0))
    sequence = NewSequence(
        id=SequenceId(1), prompt=Prompt((1,)), max_tokens=1, sampling=Sampling(seed=0)
    )
    with pytest.raises(RuntimeError, match="cannot generate"):
        engine.open(sequence)
    with pytest.raises(RuntimeError, match="cannot generate"):
        engine.execute(Step((), (), 0, 0))
    engine.free()


@pytest.mark.parametrize("slots", [1, 255])
def test_a_scheduler_can_stand_over_it(path: Path, slots: int) -> None:
    engine = load_engine(path, LoadOptions(slots=slots, context_size=4096, threads=1, gpu_layers=0))
    scheduler = Scheduler(
        slots=slots,
        context_size=4096,
        max_stall=0.5,
        capacity=engine.capacity,
        end_tokens=engine.model.vocab.end_tokens,
    )
    assert scheduler.is_idle
    engine.free()


def test_a_worker_serves_it_and_it_embeds(path: Path) -> None:
    worker = Worker(
        path,
        LoadOptions(slots=2, context_size=64, threads=1, max_stall=0.5, gpu_layers=0),
        on_step=lambda _outputs: None,
        on_crash=lambda _error: None,
    )
    model = worker.start()
    assert model.embedding is not None
    embedder = Embedder(model.embedding, model.vocab, worker.lock, max_stall=0.5)
    result = embedder.answer(Embed(inputs=("once upon", "a time")))
    assert isinstance(result, Embedded)
    assert [each.num_tokens for each in result.vectors] == [4, 4]
    embedder.free()
    worker.stop()
