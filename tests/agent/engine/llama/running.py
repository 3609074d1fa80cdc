"""What tests of the real engine run on it."""

import multiprocessing
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.loading import load_engine
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.log_probs import LogProbs
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import Drafter
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from arriero.agent.engine.step import (
    Aborted,
    Clear,
    Decoded,
    Edit,
    Free,
    Offload,
    Put,
    ReadOut,
    Restore,
    Step,
)
from arriero.shared.reports.statistics import Statistics
from tests.waiting import HANGS

TEXTS = (
    "What is a slot?",
    "How do I start the balancer, and on which ports does it listen?",
    "Why do agents dial in?",
    "queue",
    "Tell me what happens when an agent is lost while it streams an answer to a client.",
    "What does --max-stall mean?",
    "{",
    "Which errors can a client see? Name three of them.",
    "Hello!",
    "Is there a dashboard?",
    "What is continuous batching?",
    "Can I stop a request?",
)

GREEDY = Sampling(seed=0, temperature=0)


def tokenize(engine: LlamaEngine, text: str) -> tuple[int, ...]:
    return engine.model.vocab.tokenize(text, add_special=True, parse_special=True)


def prompt(engine: LlamaEngine, text: str) -> tuple[int, ...]:
    return tokenize(engine, f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def wipe(engine: LlamaEngine) -> None:
    clears = tuple(Clear(holder) for holder in range(engine.capacity.num_holders))
    assert engine.execute(Step(clears, (), 0, 0)) == Decoded(())


NO_DROPS: Mapping[int, int] = MappingProxyType({})

Ended = dict[int, tuple[tuple[int, ...], object]]


def sequences(engine: LlamaEngine, sampling: Sampling) -> list[NewSequence]:
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(prompt(engine, text)),
            max_tokens=10 + 7 * number,
            sampling=sampling,
        )
        for number, text in enumerate(TEXTS)
    ]


def generate(
    engine: LlamaEngine,
    wanted: list[NewSequence],
    *,
    slots: int,
    context_size: int = 256,
    num_cells: int = 2048,
    max_draft: int = 0,
    drafter: Drafter | None = None,
    drops: Mapping[int, int] = NO_DROPS,
    stops: Container[int] = (),
    log_probs: dict[int, tuple[LogProbs, ...]] | None = None,
) -> tuple[Ended, Statistics]:
    """Run `wanted` with so many slots and cells, in small batches: prompts are read in chunks.

    Streams have the cells that they have. Before some steps, by their number, `drops` says which
    sequence is dropped. Steps with a number in `stops` are stopped.

    Every step costs the same, so all drafts pay. `log_probs` gets those of each
    sequence's prompt and tokens.
    """
    wipe(engine)
    scheduler = Scheduler(
        slots=slots,
        context_size=context_size,
        max_stall=0.5,
        end_tokens=engine.model.vocab.end_tokens,
        capacity=replace(
            engine.capacity,
            batch_size=60,
            num_cells=engine.capacity.num_cells if engine.capacity.num_streams else num_cells,
            max_draft=max_draft,
        ),
    )
    for sequence in wanted:
        engine.open(sequence)
        scheduler.add(sequence)
    tokens: dict[int, tuple[int, ...]] = {}
    ended: Ended = {}
    drafting = Drafting(drafter or LookupDrafter(context_size))
    for number in count():
        if (dropped := drops.get(number)) is not None:
            scheduler.drop(SequenceId(dropped))
            drafting.forget(SequenceId(dropped))
            engine.close(SequenceId(dropped))
        requests, prices = scheduler.draft_requests(), scheduler.draft_prices()
        step = scheduler.plan(drafting.propose(requests, prices))
        if step is None:
            break
        engine.stop(number in stops)
        outcome = engine.execute(step)
        engine.stop(False)
        assert isinstance(outcome, Aborted if number in stops else Decoded)
        outputs = scheduler.commit(step, outcome, 0.01)
        drafting.observe(step, outcome, 0.01, outputs)
        for output in outputs:
            tokens[output.id] = tokens.get(output.id, ()) + output.tokens
            if log_probs is not None:
                new = output.prompt_log_probs + output.log_probs
                log_probs[output.id] = log_probs.get(output.id, ()) + new
            if output.end is not None:
                engine.close(output.id)
                ended[output.id] = (tokens[output.id], output.end.reason)
        scheduler.check_integrity()
    return ended, scheduler.statistics()


def apart(function: Callable[..., Any], *arguments: Any, deadline: float = HANGS) -> Any:
    """What `function` returns or raises in a process of its own.

    It is forked from one that has imported this module, and has loaded nothing yet.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(function, *arguments).result(deadline)


def answers(model: Path, options: dict[str, Any], num: int = 4) -> Ended:
    """Of the model to the first of `TEXTS`, greedily, two at a time."""
    given = {"slots": 2, "context_size": 256, "threads": 1, "fit_target": 0, **options}
    engine = load_engine(model, LoadOptions(**given))
    assert isinstance(engine, LlamaEngine)
    return generate(engine, sequences(engine, GREEDY)[:num], slots=2)[0]


def read_out(holder: int, *parts: tuple[int, int]) -> tuple[Edit, ...]:
    """What hands out these cells (start, count) of `holder`."""
    return tuple(
        edit
        for block, (start, count) in enumerate(parts)
        for edit in (Offload(holder, start, count, block), ReadOut(block), Free((block,)))
    )


def restored(holder: int, stored: StoredPrompt) -> tuple[Edit, ...]:
    """What gives `holder` the cells of `stored`."""
    puts, restores, start = [], [], 0
    for block, piece in enumerate(stored.pieces):
        puts.append(Put(block, piece.state))
        restores.append(Restore(holder, start, piece.num_tokens, block))
        start += piece.num_tokens
    return (*puts, *restores, Free(tuple(range(len(puts)))))
