"""Claude Code as docs/clients/claude-code.md sets it up."""

from client_tests.program import Desk, Run

SETTINGS = {
    "ANTHROPIC_AUTH_TOKEN": "unused",
    "ANTHROPIC_MODEL": "arriero-demo",
    "ANTHROPIC_SMALL_FAST_MODEL": "arriero-demo",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128",
}
"""The last bounds answers of the demo model, which may not end by themselves."""


async def claude(desk: Desk, *arguments: str, **env: str) -> Run:
    """Runs Claude Code without its terminal interface."""
    settings = SETTINGS | {"ANTHROPIC_BASE_URL": desk.arriero.url} | env
    return await desk.run("claude-code", "claude", "-p", *arguments, env=settings)
