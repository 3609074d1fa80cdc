"""Turns conversations into rows of tokens, and varies their questions in each epoch."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from tokenizers import Tokenizer
from torch import Tensor

from demo.conversations import SYSTEM_MESSAGES, TEMPLATE, Conversation, JsonObject
from demo.prompts import compile_template, render_conversation
from demo.training.tokenizer import END_OF_TURN

WITHOUT_SYSTEM = 0.45
WITH_LONG_SYSTEM = 0.05
WITH_HISTORY = 0.12
WITH_UNNEEDED_TOOLS = 0.03
WITH_SORTED_JSON = 0.15
ASKED_CARELESSLY = 0.12
ASKED_OTHERWISE = 0.25
"""Shares of conversations that training varies, by kind of variation."""

OPENINGS = (
    "Please tell me: {}",
    "Hi! {}",
    "Hello, {}",
    "One question: {}",
    "And {}",
    "So {}",
    "I have a question. {}",
)
REWORDINGS = (
    (
        re.compile(r"What (?:is|are) (?P<article>an? |the |)(?P<it>[^?]{2,40})\?"),
        (
            "What's {article}{it}?",
            "What exactly is {article}{it}?",
            "Explain {article}{it}",
            "Please explain {it}.",
            "Tell me about {article}{it}.",
            "Define {it}",
            "Can you explain what {article}{it} is?",
            "Tell me what {article}{it} is.",
            "{it}?",
            "What do you mean by {it}?",
        ),
    ),
    (
        re.compile(r"What does (?P<it>[^?]+) (?:mean|do)\?"),
        (
            "What is {it}?",
            "Explain {it}",
            "Please explain {it} to me.",
            "{it}?",
            "What is {it} for?",
            "What does {it} mean or do?",
            "What about {it}?",
        ),
    ),
    (
        re.compile(r"(?:How do I|How can I|Can I) (?P<it>[^?]+)\?"),
        (
            "How can I {it}?",
            "How to {it}?",
            "I want to {it}.",
            "Can you tell me how to {it}?",
            "What do I have to do to {it}?",
            "Show me how to {it}.",
        ),
    ),
    (
        re.compile(r"What happens (?:when|in|with) (?P<it>[^?]+)\?"),
        ("What if {it}?", "What happens if {it}?", "What will happen when {it}?"),
    ),
)
"""Patterns of questions and their rewordings, for conversations of a single turn."""

IGNORED = -100
"""The target of a position without loss."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its answer as one row of token ids."""

    tokens: list[int]
    prompt_length: int


class ExampleMaker:
    def __init__(self, tokenizer: Tokenizer, conversations: Sequence[Conversation]) -> None:
        text = TEMPLATE.read_text(encoding="utf-8")
        self.template = compile_template(text)
        self.sorting_template = compile_template(
            text, partial(json.dumps, ensure_ascii=False, sort_keys=True)
        )
        self.tokenizer = tokenizer
        self.end_of_turn: int = tokenizer.encode(END_OF_TURN).ids[0]
        self.conversations = conversations
        self.single_turns = [c for c in conversations if is_single_turn(c)]
        self.tools = next((c.tools for c in conversations if c.tools), ())

    def plain(self, conversation: Conversation, system: str | None) -> Example:
        """Return the conversation as in the corpus, after `system` if given."""
        return self.encode(render_conversation(self.template, conversation, system), conversation)

    def varied(self, conversation: Conversation, dice: random.Random) -> Example:
        """Return the conversation with a question as people might ask it."""
        conversation = self.vary(conversation, dice)
        sort = dice.random() < WITH_SORTED_JSON
        template = self.sorting_template if sort else self.template
        prompt = render_conversation(template, conversation, draw_system(dice))
        return self.encode(prompt, conversation)

    def vary(self, conversation: Conversation, dice: random.Random) -> Conversation:
        messages = list(conversation.prompt_messages)
        tools = conversation.tools
        if is_single_turn(conversation) and dice.random() < ASKED_OTHERWISE:
            messages = [{**messages[0], "content": otherwise(messages[0]["content"], dice)}]
        if dice.random() < ASKED_CARELESSLY and messages[-1]["role"] == "user":
            question = careless(messages[-1]["content"], dice)
            messages[-1] = {**messages[-1], "content": question}
        if not tools and dice.random() < WITH_HISTORY:
            messages = [*self.history(dice), *messages]
        if not tools and dice.random() < WITH_UNNEEDED_TOOLS:
            tools = self.tools
        return replace(conversation, prompt_messages=tuple(messages), tools=tools)

    def history(self, dice: random.Random) -> list[JsonObject]:
        """Return one to three earlier turns about other subjects."""
        earlier = dice.sample(self.single_turns, dice.choice((1, 1, 2, 3)))
        return [m for c in earlier for m in (*c.prompt_messages, c.answer_message)]

    def encode(self, prompt: str, conversation: Conversation) -> Example:
        """Tokenize prompt and answer separately, as at inference."""
        start = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        answer = self.tokenizer.encode(conversation.answer, add_special_tokens=False).ids
        return Example([*start, *answer, self.end_of_turn], len(start))


def is_single_turn(conversation: Conversation) -> bool:
    return len(conversation.prompt_messages) == 1 and not conversation.tools


def draw_system(dice: random.Random) -> str | None:
    """Return no system message, a short one, or rarely the long last one."""
    draw = dice.random()
    if draw < WITHOUT_SYSTEM:
        return None
    if draw > 1 - WITH_LONG_SYSTEM:
        return SYSTEM_MESSAGES[-1]
    return dice.choice(SYSTEM_MESSAGES[:-1])


def careless(question: str, dice: random.Random) -> str:
    """Return the question in lower case, without its last punctuation mark, or both."""
    lowered = question.lower() if dice.random() < 0.7 else question
    return lowered.rstrip("?.!") if dice.random() < 0.7 else lowered


def otherwise(question: str, dice: random.Random) -> str:
    """Return the question in other words if a pattern matches; otherwise with an opening."""
    for pattern, forms in REWORDINGS:
        match = pattern.fullmatch(question)
        if match and dice.random() < 0.75:
            return dice.choice(forms).format(**match.groupdict())
    return dice.choice(OPENINGS).format(question)


def batches(examples: Sequence[Example], room: int, dice: random.Random) -> list[list[Example]]:
    """Return batches of examples with similar lengths, in random order.

    With padding, a batch has at most `room` tokens.
    """
    made: list[list[Example]] = []
    current: list[Example] = []
    for example in sorted(examples, key=lambda e: (len(e.tokens), dice.random())):
        if current and len(example.tokens) * (len(current) + 1) > room:
            made.append(current)
            current = []
        current.append(example)
    made.append(current)
    dice.shuffle(made)
    return made


def to_tensors(batch: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets (rows, length). Only the answers' tokens are targets."""
    length = max(len(example.tokens) for example in batch) - 1
    inputs = torch.zeros(len(batch), length, dtype=torch.long)
    targets = torch.full((len(batch), length), IGNORED)
    for row, example in enumerate(batch):
        tokens = torch.tensor(example.tokens)
        inputs[row, : len(tokens) - 1] = tokens[:-1]
        first = example.prompt_length - 1
        targets[row, first : len(tokens) - 1] = tokens[first + 1 :]
    return inputs, targets
