"""Codex as docs/clients/codex.md sets it up."""

from client_tests.program import Desk, Run

CONFIG = """
model = "arriero-demo"
model_provider = "arriero"
model_context_window = {context_size}
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.arriero]
name = "Arriero"
base_url = "{url}/v1"
wire_api = "responses"
"""


async def codex(desk: Desk, *arguments: str, context_size: int = 32_768) -> Run:
    """Runs Codex without its terminal interface."""
    config = CONFIG.format(url=desk.arriero.url, context_size=context_size)
    desk.write(".codex/config.toml", config)
    return await desk.run("codex", "codex", "exec", "--json", *arguments)
