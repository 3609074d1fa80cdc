"""The check itself, for a process of its own: broken kernels end it, or compute something else.

`python -m arriero.agent.engine.llama.kernels.check THREADS` prints a `Verdict` as one line of JSON.
"""

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from .check_model import VOCAB_SIZE, check_model

LEAST_CORRELATION = 0.995
"""Of a row of logits with and without extra buffers. Sound kernels give 0.9998 or more: they sum up
in another order and round activations differently. Broken ones give noise."""

_STEPS = (48, 1, 1, 5, 33)
"""Tokens of the batches: kernels for one row, for a few, and for a tile of rows."""

_CONTEXT = 256

Logits = NDArray[np.float32]
"""A row for each batch: (batches, vocabulary)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the extra buffers can be trusted, and why not."""

    is_sound: bool
    reason: str = ""


def compare(plain: Logits, extra: Logits) -> Verdict:
    """Whether two computations of the same rows agree, as far as rounding lets them."""
    if not np.isfinite(extra).all():
        return Verdict(False, "they give logits that are not finite")
    pairs = zip(plain, extra, strict=True)
    lowest = min(float(np.corrcoef(one, other)[0, 1]) for one, other in pairs)
    if not lowest >= LEAST_CORRELATION:
        return Verdict(False, f"their logits differ from the plain ones (correlation {lowest:.3f})")
    return Verdict(True)


def compute(path: Path, *, threads: int, use_extra_buffers: bool) -> Logits:
    """Logits of the last token of each of a few batches."""
    model_params = llama_cpp.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.use_extra_bufts = use_extra_buffers
    model = llama_cpp.llama_model_load_from_file(bytes(path), model_params)
    if not model:
        raise RuntimeError("llama.cpp does not load the model that checks its kernels")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = _CONTEXT
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("llama.cpp makes no context for the model that checks its kernels")
    rows = [_decode(context, size) for size in _STEPS]
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows)


def _decode(context: Any, size: int) -> Logits:
    tokens = (llama_cpp.llama_token * size)(*((7 + 31 * n) % VOCAB_SIZE for n in range(size)))
    code = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, size))
    if code != 0:
        raise RuntimeError(f"llama.cpp does not compute the check's batch (code {code})")
    row = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (VOCAB_SIZE,))
    return row.copy()


def main() -> None:
    """Print the verdict."""
    threads = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "check.gguf"
        path.write_bytes(check_model())
        plain, extra = (
            compute(path, threads=threads, use_extra_buffers=use) for use in (False, True)
        )
    sys.stdout.write(json.dumps(asdict(compare(plain, extra))) + "\n")


if __name__ == "__main__":
    main()
