"""The cost per token of separating reasoning and tool calls from content.

Long answers, with reasoning, content and calls, go through what the agent's event loop does with
each token: its text and its kind. The same answers, read without a family, are the baseline. Shares
are of the time that a decode step takes.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

from arriero.agent.chat.families.families import family_named
from arriero.agent.chat.output.transcript import Stops, Transcript
from arriero.agent.chat.parsing.tools import Tools
from arriero.agent.generation.answers.answer import Turn
from arriero.agent.generation.answers.prepared import Parsing
from arriero.shared.inference import RequestId
from bench.arguments import at_least
from bench.prompts import text

NUM_WORDS = 400
"""In the reasoning, in the content, and in a call's argument."""

STEPS = {"a step of 5 ms": 5e-3, "a step of 110 ms": 110e-3}
"""Decode steps: of a small model, and of q06 with eight sequences on two cores."""

TOOLS = Tools([{"type": "function", "function": {"name": "write", "parameters": {}}}])

ANSWERS = {
    "qwen": (
        "<think>\n{thought}\n</think>\n\n{said}\n"
        '<tool_call>\n{{"name": "write", "arguments": {{"text": "{written}"}}}}\n</tool_call>'
    ),
    "glm": (
        "<think>{thought}</think>\n{said}\n<tool_call>write\n<arg_key>text</arg_key>\n"
        "<arg_value>{written}</arg_value>\n</tool_call>"
    ),
    "mistral": '[THINK]{thought}[/THINK]{said}[TOOL_CALLS]write[ARGS]{{"text": "{written}"}}',
    "deepseek": (
        "<think>{thought}</think>{said}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write"
        '<｜tool▁sep｜>{{"text": "{written}"}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "dsml": (
        '<think>{thought}</think>{said}\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="write">\n'
        '<｜DSML｜parameter name="text" string="true">{written}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ),
    "gpt-oss": (
        "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>{said}<|end|><|start|>assistant<|channel|>commentary to=functions.write "
        '<|constrain|>json<|message|>{{"text": "{written}"}}<|call|>'
    ),
    "gemma": (
        "<|channel>thought\n{thought}\n<channel|>{said}"
        '<|tool_call>call:write{{text:<|"|>{written}<|"|>}}<tool_call|>'
    ),
    "llama": '<|python_tag|>{{"name": "write", "parameters": {{"text": "{written}"}}}}',
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over rounds, in seconds a token: alone, and of which for telling apart."""

    num_tokens: int
    plain: float
    parsed: float

    @property
    def more(self) -> float:
        """What the separation adds."""
        return max(0.0, self.parsed - self.plain)


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=at_least(1), default=21, help="of each family (21)")
    rounds = parser.parse_args().rounds
    table = Table("family", "tokens", "plain, µs", "parsed, µs", "more, µs", *STEPS)
    for name in ANSWERS:
        cost = _cost(name, rounds)
        shares = (f"{cost.more / step:.3%}" for step in STEPS.values())
        figures = (f"{each * 1e6:.2f}" for each in (cost.plain, cost.parsed, cost.more))
        table.add_row(name, str(cost.num_tokens), *figures, *shares)
    Console().print(table)
    return 0


def _cost(name: str, rounds: int) -> Cost:
    pieces = _tokens(name)
    parsing = Parsing(family=family_named(name), is_thinking=False, tools=TOOLS)  # type: ignore[arg-type]
    plain, parsed = [], []
    for _ in range(rounds):
        plain.append(_seconds(pieces, None))
        parsed.append(_seconds(pieces, parsing))
    return Cost(len(pieces), median(plain) / len(pieces), median(parsed) / len(pieces))


def _tokens(name: str) -> list[bytes]:
    """An answer in pieces of one to seven characters, four on average, as tokens are."""
    draw = random.Random(name)
    parts = {part: text(draw, NUM_WORDS) for part in ("thought", "said", "written")}
    answer = ANSWERS[name].format(**parts)
    pieces = []
    while answer:
        size = draw.randint(1, 7)
        pieces.append(answer[:size].encode())
        answer = answer[size:]
    return pieces


def _seconds(pieces: Sequence[bytes], parsing: Parsing | None) -> float:
    transcript = Transcript(pieces.__getitem__, Stops())
    turn = Turn(RequestId("r"), parsing)
    start = perf_counter_ns()
    for token in range(len(pieces)):
        turn.take(transcript.push((token,)))
    turn.take(transcript.flush())
    turn.flush()
    return (perf_counter_ns() - start) / 1e9


if __name__ == "__main__":
    sys.exit(main())
