"""Every field and type that Anthropic's library knows, betas included, is of one kind.

Request fields are obeyed, ignored or refused. Events, blocks and reasons of answers are sent, or
never sent, with the reason.
"""

from typing import Any, get_args

import pytest
from anthropic.types import beta, message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_tokens_params
from anthropic.types.beta import message_create_params as beta_create_params

from arriero.balancer.api.anthropic.events import MessageEvents
from arriero.balancer.api.anthropic.fields import SERVER_BLOCKS
from arriero.balancer.api.anthropic.requests import COUNT_FIELDS, MESSAGES_FIELDS
from arriero.balancer.api.fields.field_table import FieldTable
from arriero.shared.inference import Done, Event, Token, ToolCall, ToolCallStarted, Usage
from tests.balancer.api.fake_runtime import TIMINGS
from tests.balancer.api.sdk_fields import unlisted
from tests.balancer.api.sdk_types import kinds_of, undecided

WHOLE = (
    "messages[].content[].caller",
    "messages[].content[].tool.definition.input_schema",
    "messages[].content[].tool_changes[].tool.definition.input_schema",
    "tools[].input_schema",
)


@pytest.mark.parametrize(
    ("table", "parameters"),
    [
        (
            MESSAGES_FIELDS,
            (
                message_create_params.MessageCreateParamsBase,
                beta_create_params.MessageCreateParamsBase,
            ),
        ),
        (
            COUNT_FIELDS,
            (
                message_count_tokens_params.MessageCountTokensParams,
                beta_count_tokens_params.MessageCountTokensParams,
            ),
        ),
    ],
    ids=["messages", "count_tokens"],
)
def test_every_field_is_of_one_kind(table: FieldTable, parameters: Any) -> None:
    # The library lets every role say every block. Here a block of another role is a 400.
    assert set(unlisted(table, *parameters, whole=WHOLE)) - table.obeyed == set()


NEVER_SENT_BLOCKS = {
    **dict.fromkeys(SERVER_BLOCKS, "no tools run on our side"),
    "container_upload": "there are no containers",
    "redacted_thinking": "thinking is told, or hidden by `thinking.display`",
}
NEVER_SENT_DELTAS = {"citations_delta": "models are not told what an answer cited"}
NEVER_SENT_REASONS = {
    "pause_turn": "no tools run on our side, so no turn is long because of them",
    "refusal": "no classifier looks at answers",
}


def told(*events: Event, **options: Any) -> tuple[list[Any], Any]:
    machine = MessageEvents("1", model="m", max_tokens=5, **options)
    return machine.begin() + [each for event in events for each in machine.take(event)], machine


def done(reason: Any, stop_string: str | None = None, tokens: int = 5) -> Done:
    return Done(reason, Usage(completion_tokens=tokens), TIMINGS, "a", stop_string)


ANSWERS = (
    told(
        Token("hm", "reasoning"),
        Token("a"),
        ToolCallStarted("c", "f"),
        Token("{}", "tool_call"),
        ToolCall("c", "f", "{}"),
        done("tool_calls"),
    ),
    told(Token("a"), done("stop"), summarizes=[]),
    told(Token("a"), done("stop")),
    told(Token("a"), done("stop", "END")),
    told(Token("a"), done("length")),
    told(Token("a"), done("length", tokens=4)),
)
EVENTS = [event for events, _ in ANSWERS for event in events]


def test_events() -> None:
    assert (
        undecided(beta.BetaRawMessageStreamEvent, {e["type"] for e in EVENTS} - {"ping"}, {}) == []
    )


def test_blocks() -> None:
    blocks = {e["content_block"]["type"] for e in EVENTS if e["type"] == "content_block_start"}
    assert undecided(beta.BetaContentBlock, blocks, NEVER_SENT_BLOCKS) == []


def test_deltas() -> None:
    deltas = {e["delta"]["type"] for e in EVENTS if e["type"] == "content_block_delta"}
    assert undecided(beta.BetaRawContentBlockDelta, deltas, NEVER_SENT_DELTAS) == []


def test_reasons_to_stop() -> None:
    reasons = {machine.message["stop_reason"] for _, machine in ANSWERS}
    assert reasons | NEVER_SENT_REASONS.keys() == set(get_args(beta.BetaStopReason))
    assert not reasons & NEVER_SENT_REASONS.keys()


def test_the_blocks_of_servers_are_the_librarys() -> None:
    assert set(SERVER_BLOCKS) <= kinds_of(beta.BetaContentBlock)
