"""Every command that the README and docs/api.md show is run against a real fleet."""

import asyncio
import re
from pathlib import Path

import pytest

from integration_tests.daemons import Fleet

ROOT = Path(__file__).parent.parent
ERROR = re.compile(r'"error": ?(?!null)')
BLOCK = re.compile(r"```sh\n(curl .*?)```", re.DOTALL)


def commands(page: str) -> list[str]:
    """The `curl` commands of a page; a line that goes on ends in a backslash or within quotes."""
    found = []
    for block in BLOCK.findall((ROOT / page).read_text()):
        found += [f"curl {rest}".strip() for rest in re.split(r"^curl ", block, flags=re.M)[1:]]
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/api.md"])
async def test_commands_work(fleet: Fleet, page: str) -> None:
    await fleet.start_balancer()
    await fleet.start_agent()
    assert commands(page)
    for command in commands(page):
        code, output = await run(fleet, command)
        assert code == 0, command
        assert output, command
        assert not ERROR.search(output), (command, output)


async def run(fleet: Fleet, command: str) -> tuple[int, str]:
    """Runs `command` as a shell would, at this fleet's ports; an HTTP error is a failure."""
    here = command.replace("http://127.0.0.1:8061", fleet.inference)
    here = here.replace("http://127.0.0.1:8060", fleet.management)
    process = await asyncio.create_subprocess_shell(
        here.replace("curl ", "curl --silent --fail-with-body ", 1),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
