"""A model file made ready to run, on the demo model."""

import logging
from pathlib import Path

import pytest

from arriero.agent.engine.llama.loading import choose_kernels, held, load_engine
from arriero.agent.engine.llama.model import Model
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from arriero.shared.models.engine_options import RopeScaling
from bench.small_models import write


def test_too_many_slots_are_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match=r"at most 255 sequences at once: lower --slots 256"):
        load_engine(model_path, LoadOptions(slots=256, context_size=256, threads=1, gpu_layers=0))


def test_a_context_beyond_the_training_is_warned_of(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    load_engine(
        model_path, LoadOptions(slots=1, context_size=100_000, threads=1, gpu_layers=0)
    ).free()
    (message,) = caplog.messages
    assert message.startswith("--context-size 100000 is more than the")


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_positions_that_are_scaled_make_the_context_longer(
    scaling: RopeScaling, model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    model = Model(model_path, LoadOptions(gpu_layers=0))
    trained = model.trained_context
    model.free()
    for context_size, is_warned_of in ((4 * trained, False), (4 * trained + 1, True)):
        caplog.clear()
        engine = load_engine(
            model_path,
            LoadOptions(
                slots=1,
                context_size=context_size,
                threads=1,
                gpu_layers=0,
                rope_scaling=scaling,
                rope_scale=4.0,
            ),
        )
        assert engine.model.embedding is not None
        assert engine.model.embedding.max_tokens == 4 * trained
        engine.free()
        assert bool(caplog.messages) == is_warned_of, caplog.messages


def test_loading_says_what_was_chosen_and_nothing_else_when_all_is_well(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    load_engine(model_path, LoadOptions(slots=4, context_size=512, threads=1, gpu_layers=0)).free()
    (chosen,) = caplog.messages
    assert chosen.startswith("--fit chose options for the model: 4 layers in memory (")
    assert chosen.endswith("GiB), cache f16, 4 slots of 512")


def test_drafts_are_left_out_where_answers_have_to_be_equal(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    engine = load_engine(
        model_path,
        LoadOptions(
            slots=1, context_size=256, threads=1, gpu_layers=0, speculate=4, deterministic=True
        ),
    )
    assert (engine.capacity.max_draft, engine.model.info.deterministic) == (0, True)
    engine.free()
    assert caplog.messages == ["--speculate 4 has no effect with --deterministic"]


@pytest.mark.parametrize(
    ("name", "max_draft"),
    [("gemma3", 4), ("qwen35", 4), ("lfm2", 4), ("granitehybrid", 0), ("mamba2", 0)],
)
def test_drafts_are_left_out_where_they_cannot_be_taken_back(
    name: str, max_draft: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = write(name, tmp_path / "model.gguf")
    options = LoadOptions(slots=1, context_size=256, threads=1, gpu_layers=0, speculate=4)
    engine = load_engine(path, options)
    assert engine.capacity.max_draft == max_draft
    engine.free()
    assert [message[:30] for message in caplog.messages] == (
        [] if max_draft else ["--speculate 4 has no effect: t"]
    )


def test_a_layout_that_cannot_be_had_is_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match="--kv-cells"):
        load_engine(
            model_path,
            LoadOptions(
                slots=2,
                context_size=512,
                kv_cells=600,
                kv_layout="streams",
                threads=1,
                gpu_layers=0,
            ),
        )


def test_a_model_holds_what_was_chosen_or_more_where_more_is_missing() -> None:
    before, after = {"ONE": 100, "OTHER": 50, "GONE": 10}, {"ONE": 40, "OTHER": 50}
    assert held({"CPU": 7, "ONE": 30}, before, after) == {"CPU": 7, "ONE": 60}
    assert held({"ONE": 80}, before, after) == {"ONE": 80}, "it has room for what comes later"
    assert held({}, before, {"ONE": 120, "OTHER": 20}) == {"OTHER": 30}, "others ended meanwhile"


def test_what_a_model_holds_is_known_when_it_is_loaded(model_path: Path) -> None:
    engine = load_engine(model_path, LoadOptions(slots=1, context_size=256, threads=1))
    assert engine.model.held.keys() == {"CPU"} and engine.model.held["CPU"] > 2**20
    engine.free()


PLAIN_BUILD = "CPU : SSE3 = 1 | AVX512 = 1 | REPACK = 1 | "
WITH_AMX = "CPU : SSE3 = 1 | AVX512 = 1 | AMX_INT8 = 1 | REPACK = 1 | "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build's libraries, which say nothing of how they were built."""
    (tmp_path / "libllama.so").write_bytes(b"\x7fELF GNU C++17 -fno-dse")
    (tmp_path / "libggml-cpu.so").write_bytes(b"\x7fELF" + bytes(100))
    return tmp_path


def test_all_are_used_where_none_are_for_amx(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_kernels("auto", system=PLAIN_BUILD, folder=folder) == "all"
    assert not caplog.records


def test_the_plain_ones_are_used_where_amx_may_be_broken(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_kernels("auto", system=WITH_AMX, folder=folder) == "plain"
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "-fno-dse" in warning.getMessage()
    assert "--kernels all" in warning.getMessage()


def test_all_are_used_where_the_library_says_that_amx_is_mended(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "libggml-cpu.so").write_bytes(b"\x7fELF GNU C++17 -O3 -fno-dse\x00" + bytes(100))
    assert choose_kernels("auto", system=WITH_AMX, folder=folder) == "all"
    assert not caplog.records


@pytest.mark.parametrize("choice", ["all", "plain"])
def test_what_was_chosen_is_used_without_a_look(choice: str, folder: Path) -> None:
    assert choose_kernels(choice, system=WITH_AMX, folder=folder) == choice  # type: ignore[arg-type]


def test_the_library_of_this_machine_is_looked_at() -> None:
    assert choose_kernels("auto") in ("all", "plain")
