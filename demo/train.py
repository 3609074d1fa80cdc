"""Trains the demo model on its corpus and writes it as GGUF: `python -m demo.train`.

The training needs PyTorch, tokenizers, gguf and jinja2. The model need not understand anything.
The model should repeat the corpus word for word under greedy decoding, with wide margins.

With `--draft`, the program trains a much smaller model with the same tokenizer. This draft model
often predicts the demo model's next token.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from torch.optim import AdamW, Muon, Optimizer

from demo.conversations import (
    DRAFT,
    MODEL,
    SYSTEM_MESSAGES,
    TEMPLATE,
    TOKENIZER,
    Conversation,
    load_conversations,
)
from demo.prompts import compile_template, render_conversation
from demo.training.examples import IGNORED, Example, ExampleMaker, batches, to_tensors
from demo.training.export import read_weights, write_gguf
from demo.training.network import Llama, Shape
from demo.training.tokenizer import VOCABULARY, train_tokenizer

DRAFT_SHAPE = Shape(
    vocabulary=VOCABULARY, width=64, layers=2, heads=2, kv_heads=1, head_width=32, hidden=160
)


@dataclass(frozen=True, slots=True)
class Plan:
    steps: int
    rate: float
    seed: int
    path: Path = MODEL
    batch_tokens: int = 4096
    warmup_steps: int = 60
    weight_decay: float = 0.01
    report_every: int = 300


@dataclass(frozen=True, slots=True)
class Score:
    """The number of answers that greedy decoding would repeat, and their margins."""

    exact: int
    total: int
    smallest_margin: float

    def __str__(self) -> str:
        return f"{self.exact}/{self.total} exact, smallest margin {self.smallest_margin:.2f}"


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    conversations = load_conversations()
    if arguments.go_on or arguments.draft:
        tokenizer = Tokenizer.from_file(str(TOKENIZER))
    else:
        tokenizer = train_tokenizer(tokenizer_texts(conversations))
        tokenizer.save(str(TOKENIZER))
    shape = DRAFT_SHAPE if arguments.draft else Shape(vocabulary=tokenizer.get_vocab_size())
    path = DRAFT if arguments.draft else MODEL
    model = Llama(shape)
    if arguments.go_on:
        read_weights(path, model)
    maker = ExampleMaker(tokenizer, conversations)
    describe(model, tokenizer, conversations)
    train(model, maker, Plan(arguments.steps, arguments.rate, arguments.seed, path))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="start from the model that is there")
    parser.add_argument("--draft", action="store_true", help="train the draft model instead")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def tokenizer_texts(conversations: Sequence[Conversation]) -> list[str]:
    """Return all prompts and answers. A list of tools is included only a few times."""
    template = compile_template(TEMPLATE.read_text(encoding="utf-8"))
    with_tools = next(c for c in conversations if c.tools)
    texts = [render_conversation(template, with_tools)] * 5 + list(SYSTEM_MESSAGES)
    for conversation in conversations:
        texts += [str(message["content"]) for message in conversation.prompt_messages]
        texts.append(conversation.answer)
    return texts


def describe(model: Llama, tokenizer: Tokenizer, conversations: Sequence[Conversation]) -> None:
    parameters = sum(weight.numel() for weight in model.parameters())
    tokens = sum(len(tokenizer.encode(c.answer).ids) for c in conversations)
    print(f"{len(conversations)} conversations, {tokens} answer tokens, {parameters} parameters")


def train(model: Llama, maker: ExampleMaker, plan: Plan) -> None:
    dice = random.Random(plan.seed)
    optimizers = make_optimizers(model, plan)
    began, step, running = time.monotonic(), 0, 0.0
    while step < plan.steps:
        epoch = [maker.varied(conversation, dice) for conversation in maker.conversations]
        for batch in batches(epoch, plan.batch_tokens, dice)[: plan.steps - step]:
            set_rates(optimizers, rate_factor(step, plan))
            loss = train_step(model, optimizers, batch)
            running = loss if step == 0 else 0.97 * running + 0.03 * loss
            step += 1
            if step % plan.report_every == 0 or step == plan.steps:
                report(model, maker, step=step, loss=running, seconds=time.monotonic() - began)
                template = TEMPLATE.read_text(encoding="utf-8")
                is_small = plan.path == DRAFT
                write_gguf(plan.path, model, maker.tokenizer, template, is_small=is_small)


def make_optimizers(model: Llama, plan: Plan) -> list[Optimizer]:
    """Return Muon for the layers' matrices, and AdamW for the embedding and the norms."""
    matrices = [w for w in model.layers.parameters() if w.ndim == 2]
    others = [w for w in model.parameters() if w.ndim == 1] + [model.embedding.weight]
    muon = Muon(
        matrices,
        lr=plan.rate,
        weight_decay=plan.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = AdamW(others, lr=plan.rate, betas=(0.9, 0.98), weight_decay=plan.weight_decay)
    for optimizer in (muon, adamw):
        for group in optimizer.param_groups:
            group["full_rate"] = group["lr"]
    return [muon, adamw]


def rate_factor(step: int, plan: Plan) -> float:
    """Return the learning rate's factor: a short warm-up, then a cosine down to one percent."""
    if step < plan.warmup_steps:
        return (step + 1) / plan.warmup_steps
    progress = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))


def set_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor


def train_step(model: Llama, optimizers: Sequence[Optimizer], batch: Sequence[Example]) -> float:
    """Update the weights once, on the answers' tokens. Returns the mean loss."""
    inputs, targets = to_tensors(batch)
    answered = targets != IGNORED
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model.logits(model(inputs)[answered])
    loss = functional.cross_entropy(logits.float(), targets[answered])
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def report(model: Llama, maker: ExampleMaker, *, step: int, loss: float, seconds: float) -> None:
    scores = (score(model, maker, None), score(model, maker, SYSTEM_MESSAGES[0]))
    print(f"step {step}, {seconds:.0f} s, loss {loss:.4f}: {scores[0]}; with system {scores[1]}")


@torch.no_grad()
def score(model: Llama, maker: ExampleMaker, system: str | None) -> Score:
    """Score each answer in one pass.

    Greedy decoding repeats an answer if every arg-max is right.
    """
    examples = [maker.plain(conversation, system) for conversation in maker.conversations]
    margins = [
        m for batch in batches(examples, 8192, random.Random(0)) for m in worst(model, batch)
    ]
    return Score(sum(m > 0 for m in margins), len(margins), min(margins))


def worst(model: Llama, batch: Sequence[Example]) -> list[float]:
    """Return the smallest lead of a right token over the best wrong token, for each answer."""
    inputs, targets = to_tensors(batch)
    answered = targets != IGNORED
    logits = model.logits(model(inputs)[answered])
    right = targets[answered].unsqueeze(1)
    lead = logits.gather(1, right).squeeze(1)
    lead = lead - logits.scatter(1, right, -math.inf).amax(1)
    return [part.min().item() for part in torch.split(lead, answered.sum(1).tolist())]


if __name__ == "__main__":
    main()
