"""Makes the page about fields of other APIs' requests: how the balancer handles each field."""

from collections.abc import Iterable, Iterator, Mapping

from arriero.balancer.api.anthropic.requests import MESSAGES_FIELDS
from arriero.balancer.api.fields.field_table import FieldTable, Ignored, Refused, Rule
from arriero.balancer.api.llama_server.requests import COMPLETION_FIELDS as LLAMA_FIELDS
from arriero.balancer.api.llama_server.requests import INFILL_FIELDS
from arriero.balancer.api.ollama.embeddings import EMBED_FIELDS as OLLAMA_EMBED_FIELDS
from arriero.balancer.api.ollama.requests import CHAT_FIELDS as OLLAMA_CHAT_FIELDS
from arriero.balancer.api.ollama.requests import GENERATE_FIELDS as OLLAMA_GENERATE_FIELDS
from arriero.balancer.api.openai.completions.requests import CHAT_FIELDS, COMPLETION_FIELDS
from arriero.balancer.api.openai.conversations.requests import CONVERSATION_FIELDS
from arriero.balancer.api.openai.queries.embeddings import EMBEDDINGS_FIELDS
from arriero.balancer.api.openai.queries.rerank import RERANK_FIELDS
from arriero.balancer.api.openai.responses.fields import NEVER_SENT
from arriero.balancer.api.openai.responses.requests import RESPONSE_FIELDS

from .tables import table

TABLES: Mapping[str, FieldTable] = {
    "/v1/chat/completions": CHAT_FIELDS,
    "/v1/completions": COMPLETION_FIELDS,
    "/v1/responses": RESPONSE_FIELDS,
    "/v1/conversations": CONVERSATION_FIELDS,
    "/v1/embeddings": EMBEDDINGS_FIELDS,
    "/v1/rerank": RERANK_FIELDS,
    "/v1/messages": MESSAGES_FIELDS,
    "/api/chat": OLLAMA_CHAT_FIELDS,
    "/api/generate": OLLAMA_GENERATE_FIELDS,
    "/api/embed": OLLAMA_EMBED_FIELDS,
    "/completion": LLAMA_FIELDS,
    "/infill": INFILL_FIELDS,
}

ABOUT = """\
A field is obeyed, ignored and told in the header `X-Arriero-Ignored`, or refused by name; [the
API](api.md#what-clients-send) says when which. A field that is in no list is ignored and told. With
`--strict-fields` what would be ignored is refused.

`messages[].content` stands for the `content` of any message. `tools[].type=web_search` stands for
the tools of that type, which are left out of the list if they are ignored; `tools[].type=*` for all
types that have no line of their own."""


def sections() -> Iterator[str]:
    """Yield the blocks of the page."""
    yield ABOUT
    for path, fields in TABLES.items():
        yield f"## {path}"
        obeyed = sorted({*fields.shape.paths(), *fields.prepared})
        yield f"Obeyed: {', '.join(f'`{each}`' for each in obeyed)}."
        for kind, cls in (("Ignored and told", Ignored), ("Refused by name", Refused)):
            if found := {
                name: rule for name, rule in fields.rules.items() if isinstance(rule, cls)
            }:
                yield _rules(kind, found)
        if fields is RESPONSE_FIELDS:
            yield _never_sent(NEVER_SENT)


def _rules(kind: str, rules: Mapping[str, Rule]) -> str:
    rows = [(f"`{name}`", rule.why, _values(rule.nothing)) for name, rule in sorted(rules.items())]
    return table((kind, "why", "but for"), rows)


def _values(nothing: Iterable[bytes]) -> str:
    return ", ".join(f"`{value.decode()}`" for value in sorted(nothing))


def _never_sent(reasons: Mapping[str, str]) -> str:
    rows = [(f"`{event}`", why) for event, why in sorted(reasons.items())]
    return table(("event that is never sent", "why"), rows)
