"""What is chosen for a file, with stand-ins for GPUs, and on real devices of bounded memory."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.engine.llama.devices import FoundDevice
from arriero.agent.engine.llama.fitting import fitted
from arriero.agent.engine.llama.loading import Loaded, load_engine, load_what_fits
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import (
    DOES_NOT_FIT,
    ModelError,
    NoMemoryError,
    missing_in,
)
from arriero.agent.gguf.choice import Fitted, chosen
from arriero.agent.gguf.memory_estimate import estimate, read_sizes
from arriero.agent.host_facts import total_memory
from arriero.shared.models.assignments import HOST
from bench.small_models import ARCHITECTURES, write
from tests.agent.gguf.gguf_files import header

MIB, GIB = 2**20, 2**30
GPU = FoundDevice("CUDA0", "a card", "gpu", memory=16 * GIB, free=11 * GIB)


def mixture(folder: Path, num_layers: int = 4) -> Path:
    """A file of layers with experts: a header, and as many bytes as its tensors have (sparse)."""
    about = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": num_layers,
        "qwen3moe.embedding_length": 1024,
        "qwen3moe.attention.head_count": 8,
        "qwen3moe.attention.head_count_kv": 2,
        "qwen3moe.expert_count": 64,
    }
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (1024, 32_000)}
    for layer in range(num_layers):
        tensors[f"blk.{layer}.attn_q.weight"] = (1024, 1024)
        tensors[f"blk.{layer}.ffn_down_exps.weight"] = (1024, 4096, 64)  # 1 GiB
    data = header(about, {**tensors, "output.weight": (1024, 32_000)})
    path = folder / "mixture.gguf"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + 4 * sum(map(math.prod, tensors.values())) + 4 * 1024 * 32_000)
    return path


def options(**more: Any) -> LoadOptions:
    return LoadOptions(**{"gpu_layers": "auto", "slots": 2, "context_size": 2048, **more})


def choose(path: Path, options: LoadOptions, *gpus: FoundDevice, host: int = 100 * GIB) -> Fitted:
    found = chosen(read_sizes(path), options, gpus, host=host)
    assert found is not None
    return found


def test_a_model_that_fits_is_offloaded_whole(tmp_path: Path) -> None:
    found = choose(mixture(tmp_path), options(), GPU)
    assert (found.options.gpu_layers, found.options.n_cpu_moe) == (5, 0)
    assert found.said.startswith("4 of 4 layers on CUDA0 (4.")
    assert found.said.endswith("GiB), cache f16, 2 slots of 2,048")


def test_experts_stay_in_memory_before_layers_do(tmp_path: Path) -> None:
    path = mixture(tmp_path)
    found = choose(path, options(), replace(GPU, free=4 * GIB))
    assert (found.options.gpu_layers, found.options.n_cpu_moe) == (5, 2)
    assert "experts of 2 layers in memory" in found.said
    found = choose(path, options(n_cpu_moe=4), replace(GPU, free=100 * GIB))
    assert (found.options.gpu_layers, found.options.n_cpu_moe) == (5, 4)
    assert choose(path, options(), replace(GPU, free=GIB // 2)).options.gpu_layers == 0


def test_the_margin_stays_free(tmp_path: Path) -> None:
    path = mixture(tmp_path)
    tight = replace(GPU, free=6 * GIB)
    assert choose(path, options(), tight).options.n_cpu_moe == 0
    wide = choose(path, options(fit_target=3 * GIB), tight)
    assert wide.options.n_cpu_moe > 0
    assert wide.fit.needed[0] <= 3 * GIB


def test_the_cache_counts_where_it_lies_and_as_wide_as_it_is(tmp_path: Path) -> None:
    path = mixture(tmp_path)

    def needed(**more: Any) -> int:
        return choose(path, options(context_size=65_536, **more), GPU).fit.needed[0]

    cells = 2 * 65_536
    cache = 4 * cells * 2 * (128 + 128) * 2
    assert needed() - needed(kv_offload=False) == cache
    q8_0 = needed(cache_type_k="q8_0", cache_type_v="q8_0")
    assert 0.4 * cache < needed() - q8_0 < 0.8 * cache  # and that of the context that embeds


def test_layers_are_divided_as_they_are_asked_to_be(tmp_path: Path) -> None:
    path = mixture(tmp_path)
    two = [GPU, replace(GPU, name="CUDA1", free=3 * GIB)]
    for more in ({"tensor_split": "0,1"}, {"split_mode": "none", "main_gpu": 1}):
        needed = choose(path, options(**more), *two).fit.needed
        assert needed[0] == 0 < needed[1] <= 2 * GIB
    assert min(choose(path, options(), *two).fit.needed) > 0


def test_parts_of_a_model_are_added_up(tmp_path: Path) -> None:
    whole = mixture(tmp_path)
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    whole.rename(first)
    tensors = {f"blk.{layer}.ffn_up_exps.weight": (1024, 1024) for layer in range(4)}
    data = header({"general.architecture": "qwen3moe"}, tensors)
    second.write_bytes(data + bytes(4 * 4 * 2**20 + 32))
    alone = tmp_path / "alone.gguf"
    alone.symlink_to(first)
    both, one = (choose(path, options(), GPU).fit.needed[0] for path in (first, alone))
    assert both - one >= 4 * 4 * 2**20


def test_a_header_that_says_too_little_chooses_nothing(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m.gguf"):
        path = tmp_path / name
        path.write_bytes(header({"general.architecture": "llama"}))
        assert fitted(path, LoadOptions()) is None


def trained_for(folder: Path, tokens: int) -> Path:
    about = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": tokens,
        "llama.embedding_length": 1024,
        "llama.attention.head_count": 8,
    }
    path = folder / f"{tokens}.gguf"
    path.write_bytes(header(about, {"token_embd.weight": (1024, 32)}) + bytes(4 * 1024 * 32))
    return path


def tokens_and_cells(found: Fitted) -> tuple[object, object]:
    return found.options.context_size, found.options.kv_cells


class TestContext:
    """`--context-size auto` and `--kv-cells auto`."""

    def test_of_a_short_model_each_slot_has_all_of_it(self, tmp_path: Path) -> None:
        found = choose(trained_for(tmp_path, 2048), LoadOptions())
        assert tokens_and_cells(found) == (2048, 8192)

    def test_without_gpus_slots_share_what_a_long_conversation_needs(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 131_072)
        found = choose(path, LoadOptions())
        assert tokens_and_cells(found) == (32_768, 32_768)
        assert found.said.endswith("cache f16, 4 slots of 32,768 that share 32,768")
        assert tokens_and_cells(choose(path, LoadOptions(slots=16))) == (65_536, 65_536)

    def test_on_gpus_slots_share_what_is_left(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 65_536)
        assert tokens_and_cells(choose(path, LoadOptions(), GPU)) == (65_536, 131_072)
        small = choose(path, LoadOptions(), replace(GPU, free=2 * GIB))
        tokens, cells = tokens_and_cells(small)
        assert isinstance(cells, int)
        assert 32_768 < cells < 131_072
        assert tokens == min(65_536, cells)

    def test_a_small_host_goes_down_to_the_smallest_context(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 131_072)
        plain = LoadOptions(host_cache=0)
        tokens, cells = tokens_and_cells(choose(path, plain, host=GIB + 380 * 2**20))
        assert tokens == cells
        assert isinstance(cells, int)
        assert 4096 < cells < 32_768
        for fewest in (512, 4096):
            given = plain.model_copy(update={"fit_ctx": fewest})
            found = choose(path, given, host=GIB)
            assert (tokens_and_cells(found), found.fit.is_tight) == ((fewest, fewest), True)

    def test_a_smaller_type_comes_first_where_it_is_allowed(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 131_072)
        given = LoadOptions(host_cache=0, fit_cache_type="q8_0")
        host = GIB + 450 * 2**20
        less = choose(path, given.model_copy(update={"fit_cache_type": None}), host=host)
        assert (less.options.cache_type_v, less.options.kv_cells != 32_768) == ("f16", True)
        found = choose(path, given, host=host)
        assert (found.options.cache_type_k, found.options.cache_type_v) == ("q8_0", "q8_0")
        assert "cache q8_0, 4 slots of" in found.said

    def test_what_is_set_stays(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 131_072)
        assert tokens_and_cells(choose(path, LoadOptions(context_size=1024))) == (1024, 4096)
        assert tokens_and_cells(choose(path, LoadOptions(kv_cells=1024))) == (1024, 1024)
        both = LoadOptions(context_size=512, kv_cells=1024)
        assert tokens_and_cells(choose(path, both)) == (512, 1024)
        # Slots share fewer cells where they do not get all of theirs.
        tight = choose(path, LoadOptions(context_size=16_384, host_cache=0), host=GIB + 700 * 2**20)
        tokens, cells = tokens_and_cells(tight)
        assert tokens == 16_384
        assert isinstance(cells, int)
        assert 16_384 <= cells < 65_536

    def test_a_slot_with_cells_of_its_own_has_its_part(self, tmp_path: Path) -> None:
        path = trained_for(tmp_path, 131_072)
        found = choose(path, LoadOptions(kv_layout="streams"))
        assert tokens_and_cells(found) == (8192, 32_768)


def test_layers_that_are_set_stay(model_path: Path) -> None:
    for number in (-1, 0, 7):
        found = choose(model_path, LoadOptions(gpu_layers=number), GPU)
        assert found.options.gpu_layers == number


def test_without_gpus_nothing_is_offloaded(model_path: Path) -> None:
    found = fitted(model_path, LoadOptions())
    assert found is not None
    assert (found.options.gpu_layers, found.options.n_cpu_moe) == (0, 0)


def test_a_device_that_is_not_there_is_refused(model_path: Path) -> None:
    with pytest.raises(ModelError, match="--device: there is no CUDA3"):
        fitted(model_path, LoadOptions(device="CUDA3"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_counted_is_what_llama_cpp_takes(
    architecture: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log says how large the buffers are: cells to the byte, others at most."""
    caplog.set_level(logging.DEBUG)
    path = write(architecture, tmp_path / "model.gguf")
    given = LoadOptions(
        slots=2, context_size=2048, threads=1, gpu_layers=0, kernels="plain", host_cache=0
    )
    engine = load_engine(path, given)
    engine.free()
    real = {"KV": 0.0, "RS": 0.0, "compute": 0.0, "output": 0.0, "model": 0.0}
    for line in caplog.messages:
        if match := re.search(r"(KV|RS|compute|output|model) buffer size = +([\d.]+) MiB", line):
            real[match[1]] += float(match[2])
    found = choose(path, given)
    needed = estimate(read_sizes(path), given)
    assert needed is not None
    assert found.fit.host == needed.total
    assert needed.cache / MIB == pytest.approx(real["KV"] + real["RS"], abs=0.03)
    assert needed.weights / MIB == pytest.approx(real["model"], abs=0.03)
    assert real["compute"] + real["output"] <= needed.compute / MIB <= 3 * real["compute"]


class TestSteppingDown:
    """Where an allocation fails. What fails is a stand-in: a host cannot be filled for a test."""

    @staticmethod
    def load(model_path: Path, most: int) -> tuple[Loaded, list[int]]:
        """With memory for `most` cells, of a model that would have 8,192; what was tried."""
        tried: list[int] = []

        def load(path: Path, options: LoadOptions) -> Loaded:
            tried.append(options.num_cells)
            if options.num_cells > most:
                raise NoMemoryError("failed to allocate buffer for kv cache")
            return load_engine(path, options.model_copy(update={"fit": "off"}))

        given = LoadOptions(threads=1, host_cache=0, fit_ctx=256)
        return load_what_fits(model_path, given, load), tried

    def test_what_holds_is_loaded_and_said(
        self, model_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        engine, tried = self.load(model_path, 1024)
        engine.free()
        assert tried == [8192, 256]
        assert engine.model.fit is not None
        assert engine.model.fit.endswith(
            "4 slots of 256 that share 256, after a larger choice could not be allocated"
        )
        assert engine.model.info.context_size == 256
        assert "so a smaller choice is tried: failed to allocate buffer" in caplog.text

    def test_what_is_missing_is_said(self, tmp_path: Path) -> None:
        def load(path: Path, options: LoadOptions) -> Loaded:
            raise NoMemoryError("failed to allocate buffer")

        path = trained_for(tmp_path, 8192)
        with pytest.raises(ModelError) as caught:
            load_what_fits(path, LoadOptions(fit_target=2**50), load)
        missing = missing_in(str(caught.value))
        found = fitted(path, LoadOptions(fit_target=2**50))
        assert found is not None
        assert missing is not None
        assert missing == pytest.approx(found.fit.missing, abs=GIB // 100)

    def test_nothing_lower(self, model_path: Path) -> None:
        with pytest.raises(ModelError, match=f"^{DOES_NOT_FIT}, and nothing less .*kv cache"):
            self.load(model_path, 255)

    def test_what_fails_for_another_reason_is_tried_once(self, model_path: Path) -> None:
        def load(path: Path, options: LoadOptions) -> Loaded:
            raise ModelError("wrong tensor")

        with pytest.raises(ModelError, match=r"^wrong tensor$"):
            load_what_fits(model_path, LoadOptions(), load)


def test_what_others_have_and_have_not_filled_yet_is_not_free(model_path: Path) -> None:
    alone = fitted(model_path, LoadOptions(host_cache=0, fit_target=0))
    assert alone is not None and not alone.fit.is_tight
    total = total_memory()
    assert total is not None
    beside = fitted(model_path, LoadOptions(host_cache=0, fit_target=0), 1.0, {HOST: total - 2**20})
    assert beside is not None and beside.fit.is_tight
    elsewhere = fitted(model_path, LoadOptions(host_cache=0, fit_target=0), 1.0, {"CUDA7": total})
    assert elsewhere is not None and not elsewhere.fit.is_tight
