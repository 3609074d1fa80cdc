"""Command R and its successors: actions."""

from ..call_syntax import json_list
from ..family import Calls, Family, Hint, ReasoningMarkers, Summary
from ..notations import plain_json

COMMAND_R = Family(
    name="command-r",
    summary=Summary("`<|START_THINKING|>…`", "`<|START_ACTION|>` or `Action:` and a JSON list"),
    hints=(Hint(("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")),),
    reasoning=ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
    calls=Calls(
        openings=("<|START_ACTION|>", "Action: ```json", "Action:```json", "Action:\n```json"),
        notations=(plain_json,),
        closings=("<|END_ACTION|>", "```"),
    ),
    wrappers=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    syntaxes=(
        (
            "<|START_ACTION|>",
            json_list(
                "<|START_ACTION|>",
                "<|END_ACTION|>",
                begin='{"tool_call_id": "NUMBER", "tool_name": "NAME", "parameters": ',
            ),
        ),
        (
            "",
            json_list("Action: ```json\n", "\n```", begin='{"tool_name": "NAME", "parameters": '),
        ),
    ),
)
