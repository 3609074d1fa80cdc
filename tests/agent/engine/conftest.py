"""The real engine on the demo model, loaded once for all of these tests."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.vocab import LlamaVocab
from arriero.agent.engine.load_options import LoadOptions
from bench.small_models import write

DEMO_MODEL = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"


@pytest.fixture
def model_path() -> Path:
    return DEMO_MODEL


@pytest.fixture(scope="session")
def small_engine(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], LlamaEngine]]:
    """Engines of small models, by their architecture (`bench.small_models`), with 1,024 cells.

    With "off" after the name they have small caches for windows (`--swa-full`), with "drafts" they
    can take back four tokens.
    """
    folder = tmp_path_factory.mktemp("models")

    @cache
    def loaded(name: str) -> LlamaEngine:
        name, *extras = name.split()
        options = LoadOptions(
            slots=4,
            context_size=256,
            threads=1,
            gpu_layers=0,
            host_cache=2**22 if "drafts" in extras else 2**20,
            kv_cells=1024,
            swa_full="off" if "off" in extras else "on",
            speculate=4 if "drafts" in extras else 0,
        )
        engine = load_engine(write(name, folder / f"{name}.gguf"), options)
        assert isinstance(engine, LlamaEngine)
        engines.append(engine)
        return engine

    engines: list[LlamaEngine] = []
    yield loaded
    for engine in engines:
        engine.free()


@pytest.fixture(scope="session")
def unified_engine() -> Iterator[LlamaEngine]:
    """One cache for all."""
    engine = load_engine(
        DEMO_MODEL,
        LoadOptions(
            slots=8, context_size=256, threads=1, gpu_layers=0, host_cache=0, kv_layout="unified"
        ),
    )
    yield engine
    engine.free()


@pytest.fixture(scope="module")
def engine(unified_engine: LlamaEngine) -> LlamaEngine:
    """The one that tests take to which the layout is all the same."""
    return unified_engine


@pytest.fixture(scope="session")
def stream_engine() -> Iterator[LlamaEngine]:
    """A cache of its own for each sequence."""
    engine = load_engine(
        DEMO_MODEL,
        LoadOptions(
            slots=8,
            context_size=256,
            threads=1,
            gpu_layers=0,
            host_cache=2**24,
            kv_layout="streams",
        ),
    )
    yield engine
    engine.free()


@pytest.fixture(scope="session")
def deterministic_engine() -> Iterator[LlamaEngine]:
    engine = load_engine(
        DEMO_MODEL,
        LoadOptions(
            slots=8, context_size=256, threads=1, gpu_layers=0, host_cache=2**24, deterministic=True
        ),
    )
    assert isinstance(engine, LlamaEngine)
    yield engine
    engine.free()


@pytest.fixture(scope="session")
def speculating_engine() -> Iterator[LlamaEngine]:
    engine = load_engine(
        DEMO_MODEL,
        LoadOptions(
            slots=8,
            context_size=512,
            threads=1,
            gpu_layers=0,
            host_cache=0,
            kv_layout="unified",
            speculate=6,
        ),
    )
    yield engine
    engine.free()


@pytest.fixture
def vocab(engine: LlamaEngine) -> LlamaVocab:
    vocab = engine.model.vocab
    assert isinstance(vocab, LlamaVocab)
    return vocab
