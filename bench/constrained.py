"""The cost of constrained output per token: computing the mask, applying it, and choosing.

Matching texts are followed token by token. The mask after each token is computed on a thread of its
own while the batch is decoded, so its time is compared with a decode step of one sequence,
which is measured in the same run; applying it to the logits, and choosing among what is left with
the default filters, comes on top of the step.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import numpy as np
from rich.table import Table

from arriero.agent.chat.constraints.gbnf import lark_of
from arriero.agent.chat.constraints.lark import Lark
from arriero.agent.engine.grammar.constraint import ConstraintError, Mask
from arriero.agent.engine.grammar.grammars import Grammars
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.loaded_model import LoadedModel
from arriero.agent.engine.sampling.filters import Pool
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import tops_of
from arriero.agent.engine.sampling.weights import Scratch
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Run, Step
from bench.arguments import at_least, model_file
from bench.store import save, wide_console

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "status": {"enum": ["open", "closed", "waiting"]},
        "subject": {"type": "string", "maxLength": 200},
        "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
        "author": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": ["integer", "null"]}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
    "required": ["id", "status", "subject", "weights", "author"],
    "additionalProperties": False,
}
DOCUMENT = {
    "id": "0b8c3cf5-9d0e-4f5c-8a55-0f4a6a1c9f3e",
    "status": "waiting",
    "subject": "The balancer holds requests until an agent has a slot; then they are sent on.",
    "weights": [0.25, 17, 3.5e-2, 1000],
    "author": {"name": "Ann Example, of the river's far side", "age": 47},
}
_SAMPLING = Sampling(seed=1)
"""The defaults: top-k 40, top-p, min-p."""

JSON_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
LINE = r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} (INFO|WARNING|ERROR) [a-z.]{1,30}: [^\n]{1,120}\n"
LOG = (
    "2031-05-17 08:14:59 INFO fleet.dispatch: request 17 goes to agent 3, which has a free slot\n"
    "2031-05-17 08:15:02 ERROR engine.worker: a step failed and its sequences end\n"
)


@dataclass(frozen=True, slots=True)
class Case:
    """What `write` makes of a grammar, and a text that fits it."""

    name: str
    write: Callable[[Lark], str]
    text: str


CASES = (
    Case("JSON Schema", lambda lark: lark.json(SCHEMA), json.dumps(DOCUMENT)),
    Case(
        "JSON Schema after reasoning",
        lambda lark: f"{lark.up_to('</think>')} {lark.json({'type': 'boolean'})}",
        f"{DOCUMENT['subject']} {LOG}</think>true",
    ),
    Case("regex", lambda lark: lark.regex(f"({LINE})+"), LOG),
    Case("GBNF", lambda lark: lark.lark(lark_of(JSON_GBNF)), json.dumps(DOCUMENT)),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds: to compile, and of the masks and their applications the median and the worst 1 %."""

    name: str
    num_tokens: int
    compile: float
    mask: float
    worst_mask: float
    apply: float
    worst_apply: float
    choose: float
    worst_choose: float
    step: float


def main() -> int:
    """Prints a table and keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=model_file, default="q06", help="a GGUF file, or q06, tiny")
    parser.add_argument("--threads", type=at_least(1), default=2, help="of the engine (2)")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="of each text (5)")
    arguments = parser.parse_args()
    engine = _load(arguments.model, arguments.threads)
    step = _decode_step(engine)
    costs = [_cost(engine.model, case, arguments.rounds, step) for case in CASES]
    engine.free()
    wide_console().print(_table(costs))
    save(
        "constrained",
        {"model": Path(arguments.model).stem, "costs": [asdict(cost) for cost in costs]},
    )
    return 0


def _table(costs: list[Cost]) -> Table:
    table = Table("", "tokens", "compile, ms", "mask, µs", "worst 1 %", "of a step")
    for column in ("apply, µs", "worst 1 %", "of a step", "choose, µs", "worst 1 %", "of a step"):
        table.add_column(column)
    for cost in costs:
        table.add_row(
            cost.name,
            str(cost.num_tokens),
            f"{cost.compile * 1e3:.1f}",
            f"{cost.mask * 1e6:.0f}",
            f"{cost.worst_mask * 1e6:.0f}",
            f"{cost.mask / cost.step:.2%}",
            f"{cost.apply * 1e6:.0f}",
            f"{cost.worst_apply * 1e6:.0f}",
            f"{cost.apply / cost.step:.2%}",
            f"{cost.choose * 1e6:.0f}",
            f"{cost.worst_choose * 1e6:.0f}",
            f"{cost.choose / cost.step:.2%}",
        )
    return table


def _load(path: Path, threads: int) -> LlamaEngine:
    engine = load_engine(
        path, LoadOptions(slots=1, context_size=512, threads=threads, gpu_layers=0)
    )
    if not isinstance(engine, LlamaEngine):
        raise TypeError(f"{path} does not generate text")
    return engine


def _decode_step(engine: LlamaEngine, num_steps: int = 30) -> float:
    """Seconds that a step of one sequence takes, without a choice."""
    seconds = []
    for position in range(num_steps):
        run = Run(SequenceId(1), 0, position, (100 + position,), False)
        start = perf_counter()
        engine.execute(Step((), (run,), 1, 0))
        seconds.append(perf_counter() - start)
    return median(seconds)


def _at_once(work: Callable[[], Mask]) -> "Future[Mask]":
    future: Future[Mask] = Future()
    try:
        future.set_result(work())
    except ConstraintError as error:
        future.set_exception(error)
    return future


def _cost(model: LoadedModel, case: Case, rounds: int, step: float) -> Cost:
    if model.grammar_tokens is None:
        raise ValueError("the model's vocabulary is not to be had for grammars")
    lark = Lark({})
    grammar = lark.grammar(case.write(lark))
    tokens = model.vocab.tokenize(case.text, add_special=False, parse_special=False)
    compiling, masks, applications, choices = [], [], [], []
    scratch = Scratch()
    logits = np.random.default_rng(1).normal(0, 3, model.vocab.size).astype(np.float32)
    grammars = Grammars(model.grammar_tokens, max_cached=0)
    grammars.compile(grammar)  # which waits for the process
    for _ in range(rounds):
        start = perf_counter()
        constraint = grammars.compile(grammar)
        compiling.append(perf_counter() - start)
        state = constraint.begin(_at_once)
        for token in tokens:
            start = perf_counter()
            state.accept(token)
            masks.append(perf_counter() - start)
            row = logits.copy()
            start = perf_counter()
            state.restrict(row)
            applications.append(perf_counter() - start)
            if state.failure is not None:
                raise ValueError(f"{case.name}: {state.failure}")
            start = perf_counter()
            pool = Pool(row, tops_of(row), scratch)
            pool.keep_highest(_SAMPLING.top_k)
            pool.keep_nucleus(_SAMPLING.top_p, _SAMPLING.min_p)
            choices.append(perf_counter() - start)
    return Cost(
        name=case.name,
        num_tokens=len(tokens),
        compile=median(compiling),
        mask=median(masks),
        worst_mask=quantiles(masks, n=100)[-1],
        apply=median(applications),
        worst_apply=quantiles(applications, n=100)[-1],
        choose=median(choices),
        worst_choose=quantiles(choices, n=100)[-1],
        step=step,
    )


if __name__ == "__main__":
    sys.exit(main())
