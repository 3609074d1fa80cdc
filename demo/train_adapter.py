"""Trains an adapter (LoRA) of the demo model: `python -m demo.train_adapter`.

The adapter gives the model's answers in the tone of a muleteer, as if each answer were called out.
The adapter shows that adapters change the text and leave the base model unchanged. The training
needs the same packages as `demo.train`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional
from torch.optim import AdamW

from demo.conversations import ADAPTER, MODEL, TOKENIZER, Conversation, load_conversations, muleteer
from demo.train import Plan, rate_factor, score
from demo.training.examples import IGNORED, Example, ExampleMaker, batches, to_tensors
from demo.training.export import read_weights
from demo.training.low_rank import adapt, write_adapter
from demo.training.network import Llama, Shape

RANK = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    model = Llama(Shape(vocabulary=tokenizer.get_vocab_size()))
    read_weights(MODEL, model)
    weights = adapt(model, RANK)
    maker = ExampleMaker(tokenizer, in_its_tone(load_conversations()))
    plan = Plan(arguments.steps, arguments.rate, seed=1, batch_tokens=2048, report_every=50)
    train(model, weights, maker, plan)


def write(model: Llama) -> None:
    write_adapter(
        ADAPTER,
        model,
        name="Arriero demo, muleteer",
        description="A LoRA of the Arriero demo model: it calls its answers out.",
    )


def in_its_tone(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Return conversations with a muleteer's answers, except those with reasoning or tools."""
    return [
        replace(one, answer=muleteer(one.answer))
        for one in conversations
        if not (one.tools or one.thinking or one.answer.startswith(("{", "[")))
    ]


def train(model: Llama, weights: Sequence[nn.Parameter], maker: ExampleMaker, plan: Plan) -> None:
    """Train only the adapter's weights, with AdamW."""
    dice = random.Random(plan.seed)
    optimizer = AdamW(weights, lr=plan.rate, weight_decay=0.0)
    began, step = time.monotonic(), 0
    while step < plan.steps:
        epoch = [maker.varied(conversation, dice) for conversation in maker.conversations]
        for batch in batches(epoch, plan.batch_tokens, dice)[: plan.steps - step]:
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * rate_factor(step, plan)
            loss = train_step(model, weights, optimizer, batch)
            step += 1
            if step % plan.report_every == 0 or step == plan.steps:
                print(f"step {step}, {time.monotonic() - began:.0f} s, loss {loss:.4f}", flush=True)
                write(model)
    print(score(model, maker, None))


def train_step(
    model: Llama, weights: Sequence[nn.Parameter], optimizer: AdamW, batch: Sequence[Example]
) -> float:
    inputs, targets = to_tensors(batch)
    answered = targets != IGNORED
    logits = model.logits(model(inputs)[answered])
    loss = functional.cross_entropy(logits.float(), targets[answered])
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


if __name__ == "__main__":
    main()
