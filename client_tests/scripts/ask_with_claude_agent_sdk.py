"""Asks through Claude's Agent SDK; tells what came as JSON.

Argument: the URL.
"""

import asyncio
import json
import os
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query


async def main() -> None:
    [url] = sys.argv[1:]
    os.environ |= {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "unused",
        "ANTHROPIC_MODEL": "arriero-demo",
        "ANTHROPIC_SMALL_FAST_MODEL": "arriero-demo",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64",
    }
    options = ClaudeAgentOptions(
        system_prompt="You are brief.", max_turns=1, tools=[], setting_sources=[]
    )
    said, has_failed = "", True
    async for message in query(prompt="What is a slot?", options=options):
        if isinstance(message, AssistantMessage):
            said += "".join(each.text for each in message.content if isinstance(each, TextBlock))
        if isinstance(message, ResultMessage):
            has_failed = message.is_error
    if has_failed:
        raise ValueError(said)
    sys.stdout.write(json.dumps({"said": said}) + "\n")


asyncio.run(main())
