"""Checks that chat templates render here as in Hugging Face's transformers.

Renders every template in llama.cpp's source with every conversation, by our renderer from what a
client would send and by transformers' own, and compares them character by character. Where
transformers refuses a conversation, we may render it; a template's mistake is no reason to fail.
"""

import json
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from time import thread_time
from typing import Any

from pydantic import TypeAdapter
from transformers.utils.chat_template_utils import render_jinja_template

from arriero.agent.chat.families.families import family_of
from arriero.agent.chat.templates.chat_template import ChatTemplate
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import Messages
from bench.conversations import CONVERSATIONS, Conversation, Message
from bench.harness import Flags, print_table
from bench.source import llama_cpp_source

_MESSAGES = TypeAdapter(Messages)
BOS, EOS = "<s>", "</s>"
RAISED = None
"""Stands for the output of a template that refuses a conversation."""


def main() -> None:
    """Exits with 1 unless all is equal."""
    flags = Flags("templates", __doc__)
    flags.add_argument("name", nargs="?", default="", help="only templates with this in the name")
    flags.add_argument("--show", action="store_true", help="show both texts where they differ")
    given = flags.parse_args()
    findings = [_compared(path) for path in template_paths(given.name)]
    columns = ("template", "family", "form", "refused", "not here", "different")
    print_table("Renderings beside transformers'", columns, map(_row, findings), left=3)
    if given.show:
        _show(findings)
    num_equal = sum(not finding.differences for finding in findings)
    num_refused = sum(finding.num_refused for finding in findings)
    num_only_ours = sum(finding.num_only_ours for finding in findings)
    print(
        f"{num_equal} of {len(findings)} templates say the same in every one of "
        f"{len(CONVERSATIONS)} conversations that transformers renders; of {num_refused} "
        f"that it refuses, {num_refused - num_only_ours} are refused here as well"
    )
    raise SystemExit(num_equal != len(findings))


def template_paths(name: str) -> list[Path]:
    """The templates in llama.cpp's source with `name` in their names."""
    folder = llama_cpp_source() / "models" / "templates"
    return sorted(path for path in folder.glob("*.jinja") if name in path.stem)


def chat_template(path: Path) -> ChatTemplate:
    """Our renderer of a template."""
    source = path.read_text()
    return ChatTemplate(source, bos_text=BOS, eos_text=EOS, clock=datetime.now, timer=thread_time)


@dataclass(frozen=True, slots=True)
class Finding:
    """`differences` by conversation: what transformers says, and what we say."""

    name: str
    family: str
    form: str
    num_refused: int
    num_only_ours: int
    differences: dict[str, tuple[str | None, str | None]]


def _compared(path: Path) -> Finding:
    source = path.read_text()
    reference = _Reference(source)
    template = chat_template(path)
    compared = {
        name: each
        for name, each in CONVERSATIONS.items()
        if not (template.ignores_tools and _has_tools(each))
    }
    theirs = {name: reference.render(each) for name, each in compared.items()}
    ours = {name: _ours(template, each) for name, each in compared.items()}
    return Finding(
        name=path.stem,
        family=family_of(source).name,
        form=str(reference.form),
        num_refused=sum(text is RAISED for text in theirs.values()),
        num_only_ours=sum(theirs[name] is RAISED and ours[name] is not RAISED for name in compared),
        differences={
            name: (theirs[name], ours[name])
            for name in compared
            if theirs[name] not in (RAISED, ours[name])
        },
    )


# ---- ours


def _has_tools(conversation: Conversation) -> bool:
    """Whether it has tools or calls. We show them even if the template does not."""
    return bool(conversation.tools) or any(
        "tool_calls" in each or each["role"] == "tool" for each in conversation.messages
    )


def _ours(template: ChatTemplate, conversation: Conversation) -> str | None:
    try:
        return template.render(
            _MESSAGES.validate_json(json.dumps([_sent(each) for each in conversation.messages])),
            tools=conversation.tools,
            thinking=conversation.thinking,
            options=conversation.options,
            add_generation_prompt=conversation.add_generation_prompt,
            goes_on=conversation.goes_on,
        ).text
    except InvalidRequest:
        return RAISED


def _sent(message: Message) -> Message:
    """As OpenAI's clients send it: arguments are text, a message that only calls has no content."""
    sent = {key: value for key, value in message.items() if value != ""}
    if "tool_calls" in message:
        sent["tool_calls"] = [_with_text(call) for call in message["tool_calls"]]
    return sent


def _with_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        **call,
        "function": {
            **function,
            "arguments": json.dumps(function["arguments"], ensure_ascii=False),
        },
    }


# ---- transformers'


@dataclass(frozen=True, slots=True)
class _Form:
    """What the documentation of a model says of messages; found here by trying."""

    has_parts: bool = False
    has_text: bool = False
    silence: str | None = ""

    def __str__(self) -> str:
        named = {
            "content in parts": self.has_parts,
            "arguments as text": self.has_text,
            "no content beside calls": self.silence is None,
        }
        return ", ".join(name for name, is_so in named.items() if is_so)

    def message(self, message: Message) -> Message:
        formed = deepcopy(message)
        if self.has_text and "tool_calls" in formed:
            formed["tool_calls"] = [_with_text(call) for call in formed["tool_calls"]]
        if not formed["content"]:
            formed["content"] = self.silence
        elif self.has_parts:
            formed["content"] = [{"type": "text", "text": formed["content"]}]
        return formed


class _Reference:
    """transformers' renderer, with messages in a form in which the template shows all of them."""

    def __init__(self, source: str) -> None:
        self._source = source
        forms = (_Form(*each) for each in product((False, True), (False, True), ("", None)))
        self.form = next((form for form in forms if self._shows_all(form)), _Form())

    def render(self, conversation: Conversation) -> str | None:
        return self._render(conversation, self.form)

    def _shows_all(self, form: _Form) -> bool:
        text = self._render(CONVERSATIONS["result"], form) or ""
        # Neither Python's notation nor JSON within JSON is what a model was trained on.
        return all(word in text for word in ("Oslo?", "a<b", "clear")) and not any(
            broken in text for broken in ("'city'", '\\"city')
        )

    def _render(self, conversation: Conversation, form: _Form) -> str | None:
        thinking = conversation.thinking
        switches = {} if thinking is None else {"enable_thinking": thinking, "thinking": thinking}
        if thinking is not None:
            switches["thinking_mode"] = "enabled" if thinking else "disabled"
        try:
            texts, _ = render_jinja_template(
                [[form.message(each) for each in conversation.messages]],
                tools=conversation.tools,
                chat_template=self._source,
                add_generation_prompt=conversation.add_generation_prompt
                and not conversation.goes_on,
                continue_final_message=conversation.goes_on,
                bos_token=BOS,
                eos_token=EOS,
                **{**switches, **conversation.options},
            )
        except Exception:  # whatever a template may raise
            return RAISED
        return str(texts[0])


# ---- for people


def _row(finding: Finding) -> list[str]:
    counts = (str(each or "") for each in (finding.num_refused, finding.num_only_ours))
    return [finding.name, finding.family, finding.form, *counts, ", ".join(finding.differences)]


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        for name, (theirs, ours) in finding.differences.items():
            print(f"--- {finding.name}, {name}\ntheirs: {theirs!r}\nours:   {ours!r}")


if __name__ == "__main__":
    main()
