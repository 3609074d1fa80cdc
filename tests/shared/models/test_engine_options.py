"""Options of an engine in a desired state: bounds, and what does not go together."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.models.engine_options import (
    CACHE_BLOCK_BYTES,
    PLAIN_CACHE_TYPES,
    EngineOptions,
    cache_bytes,
    devices_of,
    metadata_of,
    placements_of,
    shares_of,
)
from arriero.shared.validation import invalid

adapter = TypeAdapter(EngineOptions)


def parsed(options: dict[str, Any]) -> EngineOptions:
    return adapter.validate_json(adapter.dump_json(EngineOptions(**options)))


def refusal(options: dict[str, Any]) -> str:
    body = TypeAdapter(dict[str, Any]).dump_json(options)
    with pytest.raises(ValidationError) as caught:
        adapter.validate_json(body)
    return str(invalid(caught.value, body))


def test_what_is_not_said_is_left_to_the_agent() -> None:
    assert parsed({}) == EngineOptions()
    written = adapter.dump_python(EngineOptions())
    assert set(written) == {
        *("gpu_layers", "kv_cells", "host_cache", "threads", "max_stall", "speculate"),
        "draft_model",
    }, "options that came later are only written where they are set"


@pytest.mark.parametrize("cache_type", [*PLAIN_CACHE_TYPES, "q8_0"])
def test_values_in_blocks_need_flash_attention(cache_type: Any) -> None:
    assert parsed({"cache_type_v": cache_type}).cache_type_v == cache_type
    without = {"flash_attn": "off", "cache_type_v": cache_type}
    if cache_type in PLAIN_CACHE_TYPES:
        assert parsed(without).cache_type_v == cache_type
    else:
        assert "`cache_type_v` must be f32, f16 or bf16" in refusal(without)
    assert parsed({"flash_attn": "off", "cache_type_k": cache_type}).cache_type_k == cache_type


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cache_type_k": "q3_k"}, "`cache_type_k` must be 'f32', "),
        ({"flash_attn": "yes"}, "`flash_attn` must be 'auto', 'on' or 'off'"),
        ({"gpu_layers": "some"}, "`gpu_layers` must be a whole number or 'auto', not"),
        ({"gpu_layers": -2}, "`gpu_layers` must be at least -1"),
        ({"split_mode": "tensor"}, "`split_mode` must be 'none', 'layer' or 'row'"),
        ({"device": "CUDA0,,"}, "`device` must be names of devices"),
        ({"device": "none,CUDA0"}, "`device` must be names of devices"),
        ({"device": "CUDA0,CUDA0"}, "`device` must name each device once"),
        ({"tensor_split": "3;1"}, "`tensor_split` must be numbers separated by commas"),
        ({"tensor_split": "0,0"}, "`tensor_split` must be numbers"),
        ({"tensor_split": "1,-1"}, "`tensor_split` must be numbers"),
        ({"tensor_split": "1,nan"}, "`tensor_split` must be numbers"),
        ({"main_gpu": -1}, "`main_gpu` must be at least 0"),
        ({"n_cpu_moe": True}, "`n_cpu_moe` must be a whole number"),
        ({"override_tensor": "exps"}, "`override_tensor` must be PATTERN=DEVICE"),
        ({"override_tensor": "=CPU"}, "`override_tensor` must be PATTERN=DEVICE"),
        ({"override_tensor": "(=CPU"}, "`override_tensor` must have regular expressions"),
        ({"override_tensor": "a" * 4096 + "=CPU"}, "`override_tensor` must have at most 4096"),
        ({"load_mode": "fast"}, "`load_mode` must be 'auto', "),
        ({"load_mode": "dio", "mlock": True}, "`mlock` cannot be used if files are read"),
        ({"numa": "yes"}, "`numa` must be 'none', "),
        ({"batch_size": 63}, "`batch_size` must be at least 64"),
        ({"batch_size": 512, "ubatch_size": 513}, "`ubatch_size` must be at most the batch size"),
        ({"rope_scaling": "longrope"}, "`rope_scaling` must be 'none', 'linear' or 'yarn'"),
        ({"rope_scaling": "none", "rope_scale": 2}, "`rope_scale` has no effect without scaling"),
        ({"rope_scale": 0}, "`rope_scale` must be more than 0"),
        ({"yarn_ext_factor": -1}, "`yarn_ext_factor` must be at least 0"),
        ({"override_kv": "a=1"}, "`override_kv` must be KEY=TYPE:VALUE"),
        ({"override_kv": "a=int:x"}, "`override_kv` must have a value of a that is a whole number"),
        ({"override_kv": "a=bool:1"}, "`override_kv` must have a value of a that is true or false"),
        ({"override_kv": "a=float:inf"}, "`override_kv` must have a value of a that is a number"),
        ({"override_kv": f"a=str:{'x' * 128}"}, "that is a text of at most 127 bytes"),
        ({"override_kv": "a=int:1,a=int:2"}, "`override_kv` must name each key once"),
    ],
)
def test_refusals_name_the_field_and_what_would_be_right(
    options: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(options)


def test_what_is_only_for_gpus_is_taken_anywhere() -> None:
    options = {
        "gpu_layers": "auto",
        "device": "CUDA0,Vulkan1",
        "split_mode": "row",
        "tensor_split": "3,1",
        "main_gpu": 1,
    }
    assert parsed(options) == EngineOptions(**options)


def test_lists_are_written_as_for_llama_cpp() -> None:
    assert devices_of("CUDA0,RPC0[127.0.0.1:50052]") == ("CUDA0", "RPC0[127.0.0.1:50052]")
    assert devices_of("none") == ()
    assert shares_of("3,1.5") == (3.0, 1.5)
    assert placements_of(r"blk\.[0-3]\.ffn=CPU,a=b=CUDA1") == (
        (r"blk\.[0-3]\.ffn", "CPU"),
        ("a=b", "CUDA1"),
    )
    assert metadata_of('a.b=int:-3,c=float:0.5,d=bool:true,"e=str:one, ""two""",f=str:') == {
        "a.b": -3,
        "c": 0.5,
        "d": True,
        "e": 'one, "two"',
        "f": "",
    }


def test_bytes_of_a_cache() -> None:
    assert cache_bytes(65, "f16") == 130
    assert cache_bytes(64, "q8_0") == 68
    assert cache_bytes(33, "q4_0") == 36, "blocks are whole"
    assert cache_bytes(0, "f32") == 0
    assert set(CACHE_BLOCK_BYTES) >= set(PLAIN_CACHE_TYPES)
