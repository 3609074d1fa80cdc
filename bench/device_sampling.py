"""What llama.cpp's sampling on the device would save: `python -m bench.device_sampling`.

The same sequences take steps in one context. Either their rows of logits are read and the agent's
sampler chooses, or llama.cpp's samplers are attached (`llama_set_sampler`) and it gives tokens. A
request that comes or goes attaches or detaches one, and the next step begins with building the
graph anew: that step has a column of its own.

Figures are the process's computing time, so other work on the machine does not count; a thread
computes. On a GPU, use `--device`, and look at the time that passes instead (`--clock wall`).
"""

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from arriero.agent.engine.llama.devices import loaded_devices
from arriero.agent.engine.llama.log import route_log
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampler import Sampler
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.weights import Scratch
from arriero.agent.engine.sequence import NewSequence, SequenceId
from bench.harness import Flags, at_least, print_table, save
from bench.models import Q06
from bench.sampling import OPEN, BenchVocab

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "top-k 40, top-p 0.95, min-p 0.05": {},
    "temperature 1, no filter": OPEN,
    "top-p 0.95": OPEN | {"top_p": 0.95},
}
"""Of the agent's sampler; the second are the defaults of it and of llama.cpp."""

CONTEXT = 1024
MOST_SLOTS = 64
CLOCKS = {"computing": time.process_time, "wall": time.perf_counter}

Figures = dict[str, dict[str, float]]
"""By settings: medians of a step, in seconds."""


class Steps:
    """Sequences of a context, each of which gets a token a step."""

    def __init__(self, model: Path, device: str, slots: int, clock: Callable[[], float]) -> None:
        handles = {found.name: handle for handle, found in loaded_devices().all()}
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0 if device == "none" else 999
        self._devices = (ctypes.c_void_p * 2)()
        if device != "none":
            self._devices[0] = handles[device]
        params.devices = ctypes.addressof(self._devices)
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), params)
        vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocab_size = int(llama_cpp.llama_vocab_n_tokens(vocab))
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_seq_max, context.n_outputs_max = CONTEXT, slots, slots
        context.n_threads = context.n_threads_batch = 1
        context.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        self._batch = llama_cpp.llama_batch_init(slots, 0, 1)
        self._slots, self._clock, self._position = slots, clock, 0

    def rewind(self) -> None:
        """Empties the cache: steps with more cells cost more."""
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_clear(memory, True)
        self._position = 0

    def choose(self, samplers: list[Sampler]) -> float:
        """A step whose tokens `samplers` choose; what it took."""
        began = self._clock()
        self._decode()
        first = llama_cpp.llama_get_logits(self._context)
        rows = np.ctypeslib.as_array(first, (self._slots, self.vocab_size))
        with np.errstate(all="ignore"):
            for sampler, row in zip(samplers, rows, strict=True):
                sampler.choose(row)
        return self._clock() - began

    def sampled(self) -> float:
        """A step whose tokens llama.cpp gives; what it took."""
        began = self._clock()
        self._decode()
        for index in range(self._slots):
            token = llama_cpp.llama_get_sampled_token_ith(self._context, index)
            if token < 0:
                raise RuntimeError("llama.cpp does not sample with these settings on this device")
        return self._clock() - began

    @contextmanager
    def attached(self, settings: Sampling) -> Iterator[None]:
        """Each sequence has a sampler of llama.cpp's."""
        chains = [_chain(settings) for _ in range(self._slots)]
        for id, chain in enumerate(chains):
            if not llama_cpp.llama_set_sampler(self._context, id, chain):
                raise RuntimeError("llama.cpp does not take this sampler")
        try:
            yield
        finally:
            for id, chain in enumerate(chains):
                llama_cpp.llama_set_sampler(self._context, id, None)
                llama_cpp.llama_sampler_free(chain)

    def _decode(self) -> None:
        self._batch.n_tokens = self._slots
        for index in range(self._slots):
            self._batch.token[index] = 100 + index
            self._batch.pos[index] = self._position
            self._batch.n_seq_id[index] = 1
            self._batch.seq_id[index][0] = index
            self._batch.logits[index] = 1
        self._position += 1
        if llama_cpp.llama_decode(self._context, self._batch):
            raise RuntimeError("llama.cpp cannot decode")


def _chain(settings: Sampling) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in _samplers(settings):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    return chain


def _samplers(settings: Sampling) -> Iterator[Any]:
    if not settings.temperature:
        yield llama_cpp.llama_sampler_init_greedy()
        return
    if settings.top_k > 0:
        yield llama_cpp.llama_sampler_init_top_k(settings.top_k)
    if settings.top_p < 1:
        yield llama_cpp.llama_sampler_init_top_p(settings.top_p, 1)
    if settings.min_p > 0:
        yield llama_cpp.llama_sampler_init_min_p(settings.min_p, 1)
    yield llama_cpp.llama_sampler_init_temp(settings.temperature)
    yield llama_cpp.llama_sampler_init_dist(settings.seed)


def measure(steps: Steps, slots: int, *, rounds: int, num_steps: int) -> Figures:
    """Each of the settings, either way in turn."""
    vocab: Any = BenchVocab(steps.vocab_size)
    found: dict[str, dict[str, list[float]]] = {}
    scratch = Scratch()
    for _ in range(rounds):
        for name, choices in SETTINGS.items():
            settings = Sampling(**{"seed": 1, **choices})
            sequence = NewSequence(
                id=SequenceId(0), prompt=Prompt((1, 2, 3)), max_tokens=None, sampling=settings
            )
            samplers = [Sampler(sequence, vocab, scratch=scratch) for _ in range(slots)]
            of_this = found.setdefault(name, {"agent": [], "device": [], "attaching": []})
            steps.rewind()
            steps.choose(samplers)
            of_this["agent"] += [steps.choose(samplers) for _ in range(num_steps)]
            steps.rewind()
            with steps.attached(settings):
                of_this["attaching"].append(steps.sampled())
                of_this["device"] += [steps.sampled() for _ in range(num_steps)]
    return {
        name: {way: median(values) for way, values in ways.items()} for name, ways in found.items()
    }


def rows(figures: Figures) -> Iterator[list[str]]:
    """Milliseconds, one row for each of the settings."""
    for name, ways in figures.items():
        agent, device, attaching = (1000 * ways[way] for way in ("agent", "device", "attaching"))
        yield [name, f"{agent:.2f}", f"{device:.2f}", f"{device / agent:.2f}", f"{attaching:.1f}"]


def main() -> None:
    flags = Flags("device_sampling", __doc__)
    flags.file(Q06.path)
    flags.rounds(5)
    flags.add_argument("--device", default="none", help="as `arriero doctor` names it (none)")
    flags.add_argument("--slots", type=at_least(1), default=8, help="sequences (8)")
    flags.add_argument("--steps", type=at_least(1), default=10, help="of each way a round (10)")
    flags.add_argument("--clock", choices=CLOCKS, default="computing", help="(computing)")
    given = flags.parse_args()
    route_log()
    slots = min(given.slots, MOST_SLOTS)
    steps = Steps(given.model, given.device, slots, CLOCKS[given.clock])
    figures = measure(steps, slots, rounds=given.rounds, num_steps=given.steps)
    columns = ("settings", "agent chooses", "device samples", "ratio", "the step after attaching")
    print_table("milliseconds of a step: medians", columns, rows(figures))
    document = {
        "model": given.model.name,
        "device": given.device,
        "slots": slots,
        "clock": given.clock,
        "figures": figures,
    }
    save("device-sampling", document)


if __name__ == "__main__":
    main()
