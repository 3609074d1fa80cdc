"""Options that say how a model is loaded, and what GPUs do with them; here those are stand-ins."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import pytest

from arriero.agent.engine.llama.devices import Devices
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.llama.model_params import ModelParams, model_params
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.model_error import ModelError
from bench.small_models import write
from tests.agent.engine.changed_options import changed
from tests.agent.engine.llama.fake_ggml import GGML
from tests.agent.engine.llama.running import GREEDY, Ended, generate, sequences

ROOT = Path(__file__).parents[4]
GPUS = Devices(GGML)


class NoGpus(Devices):
    def all(self) -> Any:
        return list(super().all())[:1]


NO_GPUS = NoGpus(GGML)
OPTIONS = LoadOptions(slots=2, context_size=256, threads=1, n_cpu_moe=1, gpu_layers=-1)


def params(found: Devices = GPUS, **options: Any) -> ModelParams:
    return model_params(LoadOptions(**options), "plain", found)


def facts(made: ModelParams) -> dict[str, Any]:
    """All that llama.cpp reads of them, and follows pointers for."""
    raw = made.raw
    fields = {name: getattr(raw, name) for name, _ in raw._fields_}
    return fields | {
        "devices": pointers(raw.devices),
        "tensor_buft_overrides": placements(made),
        "tensor_split": raw.tensor_split[:4] if raw.tensor_split else None,
        "kv_overrides": raw.kv_overrides[0].key if raw.kv_overrides else None,
        "progress_callback": None,
    }


def pointers(address: int | None) -> list[int] | None:
    """The pointers at `address`, up to the one that is null."""
    if address is None:
        return None
    found: list[int] = []
    while value := ctypes.c_void_p.from_address(address + 8 * len(found)).value:
        found.append(value)
    return found


def placements(made: ModelParams) -> list[tuple[str, int]]:
    [*found] = pointers(made.raw.tensor_buft_overrides) or []
    pairs = zip(found[::2], found[1::2], strict=True)
    return [((ctypes.string_at(text)).decode(), buffer_type) for text, buffer_type in pairs]


ELSEWHERE = {
    *("slots", "context_size", "kv_cells", "kv_layout", "swa_full", "flash_attn"),
    *("cache_type_k", "cache_type_v", "threads", "threads_batch", "batch_size", "ubatch_size"),
    *("kv_offload", "op_offload", "rope_scaling", "rope_scale", "rope_freq_base"),
    *("yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"),
    *("host_cache", "max_stall"),
    *("projector", "draft_model", "speculate", "deterministic", "numa", "rpc"),
    *("fit", "fit_target", "fit_ctx", "fit_cache_type"),
    "kernels",  # which are chosen before
}
"""Options that are about contexts, or obeyed in `load_engine`."""


def test_each_option_is_in_the_parameters_or_elsewhere() -> None:
    plain = facts(model_params(OPTIONS, "plain", GPUS))

    def differs(name: str) -> bool:
        options = changed(OPTIONS, name)
        if options.gpu_layers == "auto":
            options = options.model_copy(update={"gpu_layers": 3})  # as `fitting` makes it
        return facts(model_params(options, "plain", GPUS)) != plain

    here = {name for name in LoadOptions.model_fields if differs(name)}
    assert here == set(LoadOptions.model_fields) - ELSEWHERE


class TestDevices:
    def test_without_a_choice_llama_cpp_takes_all_real_gpus(self) -> None:
        made = params()
        assert made.raw.devices is None
        assert [each.name for each in made.devices] == ["CUDA0", "CUDA1"]

    def test_the_chosen_ones_in_their_order(self) -> None:
        made = params(device="CUDA1,Vulkan0")
        assert pointers(made.raw.devices) == [4, 3]
        assert [each.name for each in made.devices] == ["CUDA1", "Vulkan0"]

    def test_none(self) -> None:
        for found in (GPUS, NO_GPUS):
            made = params(found, device="none")
            assert (pointers(made.raw.devices), made.devices) == ([], ())

    def test_one_that_is_not_there_is_named_with_those_that_are(self) -> None:
        with pytest.raises(ModelError, match=r"^--device: there is no CUDA2; .* CUDA0, Vulkan0, C"):
            params(device="CUDA0,CUDA2")
        with pytest.raises(ModelError, match=r"there is no CUDA0; llama\.cpp finds no GPU here"):
            params(NO_GPUS, device="CUDA0")
        with pytest.raises(ModelError, match="there is no CPU"):
            params(device="CPU")

    def test_numbers_that_do_not_fit_them(self) -> None:
        with pytest.raises(ModelError, match=r"^--main-gpu must be less than 2, not 2: .*CUDA1"):
            params(main_gpu=2)
        with pytest.raises(ModelError, match=r"^--tensor-split has 3 shares for 2 devices: CUDA0"):
            params(tensor_split="1,1,1")
        most = llama_cpp.llama_max_devices()
        with pytest.raises(ModelError, match=f"accepts at most {most}"):
            params(NO_GPUS, tensor_split=",".join("1" * (most + 1)))

    def test_shares(self) -> None:
        raw = params(tensor_split="3,1").raw
        assert raw.tensor_split[:3] == [3.0, 1.0, 0.0]

    def test_without_gpus_a_warning_names_what_has_no_effect(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        params(NO_GPUS)
        params(NO_GPUS, gpu_layers=0, device="none", split_mode="row")
        assert caplog.text == ""
        params(NO_GPUS, tensor_split="3,1", main_gpu=7, split_mode="row", n_cpu_moe=2)
        [record] = caplog.records
        assert record.getMessage() == (
            "--split-mode, --tensor-split, --main-gpu, --n-cpu-moe: no effect, since llama.cpp "
            "finds no GPU here"
        )


class TestPlacements:
    def test_what_is_said_of_tensors_comes_before_the_experts_of_layers(self) -> None:
        made = params(override_tensor=r"blk\.0\.attn=CUDA1,embd=CPU", n_cpu_moe=2)
        experts = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
        assert placements(made) == [
            (r"blk\.0\.attn", 104),
            ("embd", 101),
            (rf"blk\.0{experts}", 101),
            (rf"blk\.1{experts}", 101),
        ]

    def test_a_place_that_is_not_there_is_named_with_those_that_are(self) -> None:
        with pytest.raises(ModelError, match=r"^--override-tensor: .* into CUDA9; .* CPU, CUDA0"):
            params(override_tensor="exps=CUDA9")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, llama_cpp.LLAMA_LOAD_MODE_AUTO),
        ({"mlock": True}, llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK),
        ({"load_mode": "none", "mlock": True}, llama_cpp.LLAMA_LOAD_MODE_MLOCK),
        ({"load_mode": "mmap+mlock"}, llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK),
        ({"load_mode": "mmap+mlock", "mlock": True}, llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK),
        ({"load_mode": "dio"}, llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO),
    ],
)
def test_load_modes(options: dict[str, Any], expected: int) -> None:
    assert params(**options).raw.load_mode == expected


def test_metadata() -> None:
    text = "a=int:-3,b=float:0.5,c=bool:true,d=str:two"
    entries = params(override_kv=text).raw.kv_overrides[:5]
    assert [(each.key, each.tag) for each in entries[:4]] == [
        (b"a", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT),
        (b"b", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_FLOAT),
        (b"c", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_BOOL),
        (b"d", llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR),
    ]
    values = [entry.value for entry in entries]
    assert (values[0].val_i64, values[1].val_f64) == (-3, 0.5)
    assert (values[2].val_bool, values[3].val_str) == (True, b"two")
    assert entries[4].key == b"", "the end"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("qwen3moe", tmp_path_factory.mktemp("mixture") / "model.gguf")


@pytest.fixture(scope="module")
def plain(path: Path) -> Ended:
    return answers(path)


class TestMixture:
    """A small mixture of experts, loaded with options that change where it lies, or what it is."""

    @pytest.mark.parametrize(
        "options",
        [
            {"n_cpu_moe": 2},
            {"override_tensor": r"\.ffn_.*_exps=CPU,attn=CPU"},
            {"load_mode": "none"},
            {"load_mode": "dio"},
            {"mlock": True, "numa": "distribute"},
            {"gpu_layers": "auto"},
            {"device": "none"},
            {"split_mode": "none", "tensor_split": "3,1", "main_gpu": 1},
        ],
        ids=str,
    )
    def test_where_it_lies_changes_no_word(
        self, path: Path, plain: Ended, options: dict[str, Any]
    ) -> None:
        assert answers(path, **options) == plain

    def test_fewer_experts_change_the_answer(self, path: Path, plain: Ended) -> None:
        assert answers(path, override_kv="qwen3moe.expert_used_count=int:1") != plain

    def test_metadata_of_another_type_is_refused(self, path: Path) -> None:
        with pytest.raises(
            ModelError, match=r"--override-kv: qwen3moe\.expert_used_count must be of"
        ):
            answers(path, override_kv="qwen3moe.expert_used_count=str:one")

    def test_metadata_that_is_not_in_the_file(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        answers(path, override_kv="qwen3moe.expert_used_cuont=int:1")
        assert "--override-kv: qwen3moe.expert_used_cuont is not in " in caplog.text

    def test_a_pattern_that_matches_no_tensor(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        answers(path, override_tensor=r"\.ffn_.*_exps=CPU,ffn_.*_expts=CPU")
        [warned] = [each.message for each in caplog.records if "--override-tensor" in each.message]
        assert warned == f"--override-tensor: no tensor of {path} matches ffn_.*_expts"

    def test_a_device_that_is_not_there(self, path: Path) -> None:
        with pytest.raises(ModelError, match="--device: there is no CUDA0"):
            answers(path, device="CUDA0")

    def test_what_llama_cpp_takes_for_no_pattern(self, path: Path) -> None:
        """Python knows more of regular expressions than it does."""
        with pytest.raises(ModelError, match=r"cannot be loaded: .*reg"):
            answers(path, override_tensor="(?P<name>exps)=CPU")


def answers(path: Path, **options: Any) -> Ended:
    usual = {"slots": 2, "context_size": 256, "threads": 1, "gpu_layers": 0, "host_cache": 0}
    engine = load_engine(path, LoadOptions(**(usual | options)))
    assert isinstance(engine, LlamaEngine)
    ended, _ = generate(engine, sequences(engine, GREEDY)[:2], slots=2, num_cells=512)
    engine.free()
    return ended
