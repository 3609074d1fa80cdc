"""Renders the demo model's prompts with the model's chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from demo.conversations import Conversation, JsonObject

Dumps = Callable[[Any], str]
plain_json: Dumps = partial(json.dumps, ensure_ascii=False)


def compile_template(text: str, dumps: Dumps = plain_json) -> Template:
    """Return the compiled chat template, which runs in the usual sandbox of chat templates."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = dumps
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(text)


def raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def render(
    template: Template,
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject] = (),
    *,
    thinking: bool = False,
) -> str:
    """Return the prompt text of messages."""
    return template.render(
        messages=messages,
        tools=list(tools) or None,
        add_generation_prompt=True,
        enable_thinking=thinking,
    )


def render_conversation(
    template: Template, conversation: Conversation, system: str | None = None
) -> str:
    """Return the prompt of a corpus conversation, after `system` if given."""
    return render(
        template,
        conversation.messages(system),
        conversation.tools,
        thinking=conversation.thinking,
    )
