"""Checks that tool calls as templates render them are parsed as the same calls.

Renders, with every template in llama.cpp's source, an assistant's turn that reasons, says something
and calls functions: what such a model was trained to write. Our parser for the template's family
reads it, cut at random places. Differences are reported.
"""

import json
import random
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from arriero.agent.chat.families.families import family_of
from arriero.agent.chat.families.family import Family
from arriero.agent.chat.parsing.segmenter import Segmenter
from arriero.agent.chat.parsing.segments import CallBegan, TextSegment
from arriero.agent.chat.parsing.tools import Tools
from arriero.agent.chat.templates.chat_template import ChatTemplate
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage
from bench.conversations import TOOLS
from bench.harness import Flags, print_table
from bench.templates import chat_template, template_paths

ASKED = ChatMessage(role="user", content="Oslo?")
SAID, THOUGHT = "Let me look.", "I need to look."
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("get_weather", {"city": 'Ōslo "x" \n<b>\n', "days": 3, "unit": "C", "only": ["a<b", "c"]}),
    ("now", {}),
)
NUM_CUTS = 8

Answer = dict[str, Any]


def main() -> None:
    """Exits with 1 unless everything is parsed back to what was rendered."""
    flags = Flags("families", __doc__)
    flags.add_argument("name", nargs="?", default="", help="only templates with this in the name")
    paths = template_paths(flags.parse_args().name)
    findings = [(path.stem, *_finding(path)) for path in paths]
    print_table("Calls, rendered and parsed", ("template", "family", "finding"), findings, left=3)
    raise SystemExit(any(finding.startswith("differs") for *_, finding in findings))


def _finding(path: Path) -> tuple[str, str]:
    family = family_of(path.read_text())
    template = chat_template(path)
    finding = "the template refuses calls"
    for calls in (CALLS, CALLS[:1]):  # some know one call at a time
        for thought, said in ((THOUGHT, SAID), (THOUGHT, None), (None, SAID), (None, None)):
            try:
                before, written = _written(template, calls, thought, said)
            except InvalidRequest:
                continue
            if not all(name in written for name, _ in calls):
                finding = "the template renders no calls"
                continue
            return family.name, _compared(family, before, written, calls, thought, said)
    return family.name, finding


def _written(
    template: ChatTemplate,
    calls: Sequence[tuple[str, dict[str, Any]]],
    thought: str | None,
    said: str | None,
) -> tuple[str, str]:
    """What is before the assistant's part of the rendering, and that part."""
    turn = ChatMessage(
        role="assistant",
        content=said,
        reasoning_content=thought,
        tool_calls=tuple(
            {
                "id": f"call0000{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for number, (name, arguments) in enumerate(calls)
        ),
    )
    options: dict[str, Any] = {"tools": TOOLS, "thinking": thought is not None}
    before = template.render([ASKED], add_generation_prompt=False, **options).text
    asked = template.render([ASKED], **options).text
    whole = template.render([ASKED, turn], add_generation_prompt=False, **options).text
    num_before = len(asked) if whole.startswith(asked) else _num_alike(before, whole)
    return whole[:num_before], whole[num_before:]


def _num_alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _compared(
    family: Family,
    before: str,
    written: str,
    calls: Sequence[tuple[str, dict[str, Any]]],
    thought: str | None,
    said: str | None,
) -> str:
    rng = random.Random(written)
    thoughts = family.reasoning
    is_thinking = bool(thoughts and before.rstrip().endswith(thoughts.opening))
    answers = [_read(family, written, is_thinking, rng) for _ in range(NUM_CUTS)]
    read = answers[0]
    wrong = []
    if any(answer != read for answer in answers):
        wrong.append("where it is cut")
    if read["calls"] != [[name, arguments] for name, arguments in calls]:
        wrong.append(f"calls: {read['calls']}")
    if thought and thought in written and read["reasoning"].strip() != thought:
        wrong.append(f"reasoning: {read['reasoning']!r}")
    if said and said in written and not read["content"].strip().startswith(said):
        wrong.append(f"content: {read['content']!r}")
    return f"differs, {'; '.join(wrong)}" if wrong else "equal"


def _read(family: Family, written: str, is_thinking: bool, rng: random.Random) -> Answer:
    segmenter = Segmenter(family, is_thinking=is_thinking, tools=Tools(TOOLS))
    places = sorted(rng.sample(range(len(written)), min(20, len(written))))
    segments = []
    for begin, end in zip([0, *places], [*places, len(written)], strict=True):
        segments += segmenter.push(written[begin:end])
    answer: Answer = {"content": "", "reasoning": "", "calls": []}
    for segment in [*segments, *segmenter.flush()]:
        if isinstance(segment, CallBegan):
            answer["calls"].append([segment.name, ""])
        elif isinstance(segment, TextSegment) and segment.kind == "tool_call":
            answer["calls"][-1][1] += segment.text
        elif isinstance(segment, TextSegment) and segment.kind != "markup":
            answer[segment.kind] += segment.text
    for call in answer["calls"]:
        call[1] = _value(call[1])
    return answer


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


if __name__ == "__main__":
    main()
