"""The parameters of llama.cpp's contexts that follow from the engine's options.

A model can have two contexts, for generation and for embeddings. Both begin with these parameters,
and each sets the parameters that differ.
"""

from collections.abc import Mapping
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ....shared.models.engine_options import CacheType
from ..load_options import LoadOptions

_FLASH_ATTENTION = {
    "auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_ROPE_SCALING = {
    "none": llama_cpp.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN,
}
_CACHE_TYPES: Mapping[CacheType, int] = {
    "f32": llama_cpp.GGML_TYPE_F32,
    "f16": llama_cpp.GGML_TYPE_F16,
    "bf16": 30,  # llama-cpp-python has no name for it
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
    "q4_1": llama_cpp.GGML_TYPE_Q4_1,
    "iq4_nl": llama_cpp.GGML_TYPE_IQ4_NL,
    "q5_0": llama_cpp.GGML_TYPE_Q5_0,
    "q5_1": llama_cpp.GGML_TYPE_Q5_1,
}


def context_params(options: LoadOptions) -> Any:
    """Return llama.cpp's defaults, changed by `options`."""
    params = llama_cpp.llama_context_default_params()
    params.n_threads = options.threads
    params.n_threads_batch = options.threads_batch or options.threads
    params.n_batch = max(options.step_tokens, options.slots)
    params.n_ubatch = options.ubatch_size
    params.offload_kqv = options.kv_offload
    params.op_offload = options.op_offload
    params.flash_attn_type = _FLASH_ATTENTION[options.flash_attn]
    params.type_k = _CACHE_TYPES[options.cache_type_k]
    params.type_v = _CACHE_TYPES[options.cache_type_v]
    if options.rope_scaling is not None:
        params.rope_scaling_type = _ROPE_SCALING[options.rope_scaling]
    if options.rope_scale is not None:
        params.rope_freq_scale = 1 / options.rope_scale
    params.rope_freq_base = options.rope_freq_base or 0  # 0 is the model's own
    params.yarn_orig_ctx = options.yarn_orig_ctx or 0
    params.yarn_ext_factor = _or_own(options.yarn_ext_factor)
    params.yarn_attn_factor = _or_own(options.yarn_attn_factor)
    params.yarn_beta_slow = _or_own(options.yarn_beta_slow)
    params.yarn_beta_fast = _or_own(options.yarn_beta_fast)
    return params


def _or_own(factor: float | None) -> float:
    """Return `factor`, or the negative number that stands for the model's own factor."""
    return -1.0 if factor is None else factor
