"""What a draft model gains or costs: `python -m bench.drafts`.

One thread computes the same answers with drafts and without, in pairs of rounds; nothing else is
measured, so processor time is a fair measure on a machine that others use, too. The target is the
demo model, `--deeper` times as deep: added layers write zeros, so steps cost more and the answers
stay. It has the demo's draft model, or one that guesses nonsense: the worst case.
The first answers of each engine count, too, so what finding out costs is in the figures.
"""

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import gguf
import numpy as np

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import JointDrafter
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from arriero.agent.engine.step import Decoded, Step
from bench.figures import Rounds, median_of, spread
from bench.harness import Flags, at_least, print_table, save
from bench.small_models import copy_fields, finish
from bench.store import cache_folder
from demo.conversations import DRAFT, MODEL, TEMPLATE, Conversation, load_conversations
from demo.prompts import compile_template, render

CONTEXT_SIZE = 1024
MOST_DRAFTED = 8
SIZES = (1, 4, 8)
SECONDS, TIMES = "processor time", "times as fast"

Side = Literal["without", "lookup", "good", "random"]
SIDES: tuple[Side, ...] = ("without", "lookup", "good", "random")

Result = tuple[float, list[tuple[int, ...]], str]
"""Processor seconds, the answers, and how many drafted tokens were right."""


def scrambled(model: Path) -> Path:
    """`model` with random weights: a draft model that is never right, but by chance."""
    path = cache_folder() / f"{model.stem}-scrambled.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        data = bytearray(model.read_bytes())
        draw = np.random.default_rng(1)
        for tensor in gguf.GGUFReader(model).tensors:
            if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
                shape = [int(size) for size in reversed(tensor.shape)]
                weights = draw.standard_normal(shape, np.float32) * np.float32(0.05)
                packed = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0).tobytes()
                data[tensor.data_offset : tensor.data_offset + len(packed)] = packed
        path.write_bytes(data)
    return path


_SILENT = ("attn_output.weight", "ffn_down.weight")
"""What writes into the stream that goes through all layers."""


def deepened(model: Path, factor: int) -> Path:
    """`model`, a `llama` in 16-bit floats, with `factor` times its layers; made once."""
    path = cache_folder() / f"{model.stem}-deep-{factor}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        _write_deeper(unfinished, gguf.GGUFReader(model), factor)
        unfinished.rename(path)
    return path


def _write_deeper(path: Path, model: gguf.GGUFReader, factor: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    num_layers = int(model.fields["llama.block_count"].contents())
    made_anew = ("general.architecture", "llama.block_count")
    copy_fields(writer, model, lambda name: not name.startswith("GGUF.") and name not in made_anew)
    writer.add_block_count(factor * num_layers)
    for tensor in model.tensors:
        writer.add_tensor(tensor.name, tensor.data)
        block, number, *rest = tensor.name.split(".", 2)
        if block != "blk":
            continue
        name = ".".join(rest)
        weights = np.zeros_like(tensor.data) if name in _SILENT else tensor.data
        for layer in range(num_layers + int(number), factor * num_layers, num_layers):
            writer.add_tensor(f"blk.{layer}.{name}", weights)
    finish(writer)


def questions(number: int, count: int) -> list[Conversation]:
    """What one round asks."""
    every = load_conversations()
    return random.Random(number).sample(every, count)


def run(side: Side, target: Path, asked: Sequence[Conversation], slots: int) -> Result:
    """Answer `asked` with a fresh engine, `slots` at a time."""
    drafts = {"good": DRAFT, "random": scrambled(DRAFT)}
    engine = load_engine(
        target,
        LoadOptions(
            slots=slots,
            context_size=CONTEXT_SIZE,
            threads=1,
            gpu_layers=0,
            speculate=0 if side == "without" else MOST_DRAFTED,
            draft_model=drafts.get(side),
        ),
    )
    if not isinstance(engine, LlamaEngine):
        raise SystemExit(f"bench: {target} does not generate")
    try:
        return _answer(engine, asked, slots)
    finally:
        engine.free()


def _answer(engine: LlamaEngine, asked: Sequence[Conversation], slots: int) -> Result:
    scheduler = Scheduler(
        slots=slots,
        context_size=CONTEXT_SIZE,
        max_stall=0.5,
        end_tokens=engine.model.vocab.end_tokens,
        capacity=engine.capacity,
    )
    drafting = _drafting(engine)
    waiting = _sequences(engine, asked)
    for sequence in islice(waiting, slots):
        _begin(engine, scheduler, sequence)
    answers: dict[int, tuple[int, ...]] = {}
    began = time.thread_time()
    while True:
        started = time.thread_time()
        step = _plan(scheduler, drafting)
        if step is None:
            break
        planned = time.thread_time()
        outcome = engine.execute(step)
        if not isinstance(outcome, Decoded):
            raise SystemExit(f"bench: a step was not computed: {outcome}")
        took = time.thread_time() - planned
        outputs = scheduler.commit(step, outcome, took, planned - started)
        drafting.observe(step, outcome, took, outputs)
        for output in outputs:
            answers[output.id] = answers.get(output.id, ()) + output.tokens
            if output.end is not None:
                engine.close(output.id)
                for sequence in islice(waiting, 1):
                    _begin(engine, scheduler, sequence)
    seconds = time.thread_time() - began
    did = scheduler.statistics()
    return (
        seconds,
        [answers[id] for id in sorted(answers)],
        f"{did.accepted_tokens}/{did.drafted_tokens}",
    )


def _plan(scheduler: Scheduler, drafting: Drafting) -> Step | None:
    requests = scheduler.draft_requests()
    if not requests:
        return scheduler.plan()
    return scheduler.plan(drafting.propose(requests, scheduler.draft_prices()))


def _drafting(engine: LlamaEngine) -> Drafting:
    if not engine.capacity.max_draft:
        return Drafting(None)
    lookup = LookupDrafter(CONTEXT_SIZE)
    if engine.draft_model is None:
        return Drafting(lookup)
    model = ModelDrafter(engine.draft_model, clock=time.thread_time)
    return Drafting(JointDrafter(lookup, model))


def _begin(engine: LlamaEngine, scheduler: Scheduler, sequence: NewSequence) -> None:
    engine.open(sequence)
    scheduler.add(sequence)


def _sequences(engine: LlamaEngine, asked: Sequence[Conversation]) -> Iterator[NewSequence]:
    template = compile_template(TEMPLATE.read_text(encoding="utf-8"))
    for number, one in enumerate(asked):
        text = render(template, one.prompt_messages, one.tools, thinking=one.thinking)
        yield NewSequence(
            id=SequenceId(number),
            prompt=Prompt(engine.model.vocab.tokenize(text, add_special=True, parse_special=True)),
            max_tokens=300,
            sampling=Sampling(seed=0, temperature=0),
        )


def measure(target: Path, slots: int, given: argparse.Namespace, sides: Sequence[Side]) -> Rounds:
    """Processor seconds of each side, and how many times as fast it was as without drafts."""
    rounds: Rounds = {side: [] for side in sides}
    for number in range(given.rounds):
        asked = questions(number, given.requests)
        turn = sides if number % 2 else sides[::-1]
        results = {side: run(side, target, asked, slots) for side in turn}
        for side, (took, answers, accepted) in results.items():
            if answers != results["without"][1]:
                raise SystemExit(f"bench: {side}: other answers than without drafts")
            rounds[side].append({SECONDS: took, TIMES: results["without"][0] / took})
            print(f"{slots} slots, {side}: {took:.2f} s, drafted tokens right: {accepted}")
    return rounds


def rows(found: dict[int, Rounds]) -> Iterator[list[str]]:
    """One row for each side and number of slots."""
    for slots, rounds in found.items():
        for side, each in rounds.items():
            times = spread([one[TIMES] for one in each], "{:.3f}".format)
            yield [side, str(slots), f"{median_of(each, SECONDS):.2f} s", times]


def main() -> None:
    flags = Flags("drafts", __doc__)
    flags.rounds(5)
    flags.add_argument("--requests", type=at_least(1), default=16, help="answers of a round")
    flags.add_argument("--deeper", type=at_least(1), default=8, help="times the demo's layers")
    flags.add_argument("--slots", type=at_least(1), action="append", help="repeatable")
    flags.add_argument("--side", choices=SIDES[1:], action="append", help="repeatable")
    given = flags.parse_args()
    target = MODEL if given.deeper == 1 else deepened(MODEL, given.deeper)
    sides: tuple[Side, ...] = ("without", *(given.side or SIDES[1:]))
    found = {slots: measure(target, slots, given, sides) for slots in given.slots or SIZES}
    columns = ("drafts", "slots", SECONDS, TIMES)
    print_table("What drafts gain: medians (least to most) of the rounds", columns, rows(found))
    save("drafts", {"given": vars(given), "rounds": found})


if __name__ == "__main__":
    main()
