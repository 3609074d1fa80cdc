"""The fields of a request for text, as types; `docs/api.md` says what each means."""

from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import TypedDict


class GenerateOptions(TypedDict, total=False):
    """Give exactly one of `prompt` (text or token ids) and `messages`."""

    prompt: str | Sequence[int]
    messages: Sequence[dict[str, Any]]
    model: str
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    seed: int
    logit_bias: dict[str, float]
    stop: Sequence[str]
    logprobs: bool
    top_logprobs: int
    prompt_logprobs: bool
    suffix: str
    stop_token_ids: Sequence[int]
    include_stop_str_in_output: bool
    min_tokens: int
    ignore_eos: bool
    thinking: bool
    chat_template_kwargs: dict[str, Any]
    continue_final_message: bool
    add_generation_prompt: bool
    tools: Sequence[dict[str, Any]]
    tool_choice: Literal["auto", "none", "required"] | dict[str, str]
    parallel_tool_calls: bool
    grammar: dict[str, Any]
    n_discard: int
    prefill_only: bool
    cache_key: str
    save_cache: bool
    prompt_cache_key: str
    priority: int | Literal["interactive", "default", "batch"]
    deadline_ms: int
