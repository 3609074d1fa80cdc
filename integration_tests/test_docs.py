"""Every `curl` command of the README and the pages of the APIs runs against a real fleet."""

import asyncio
import os
import re
import sys
from pathlib import Path

from integration_tests.daemons import DEADLINE, Fleet

ROOT = Path(__file__).parent.parent
ERROR = re.compile(r'"error": ?(?!null)')
BLOCK = re.compile(r"```sh\n((?:curl |\w+=\$\(curl ).*?)```", re.DOTALL)


def commands(page: str) -> list[str]:
    """The `curl` commands of a page; a line that goes on ends in a backslash or within quotes.

    A block that keeps an answer in a variable is one command.
    """
    found: list[str] = []
    for block in BLOCK.findall((ROOT / page).read_text()):
        if not block.startswith("curl "):
            found.append(block)
            continue
        found += [f"curl {rest}".strip() for rest in re.split(r"^curl ", block, flags=re.M)[1:]]
    return found


async def test_commands_work(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.start_agent()
    pages = ["README.md", "docs/api.md", *(str(each) for each in (ROOT / "docs/api").glob("*.md"))]
    found = [command for page in pages for command in commands(page)]
    assert len(found) > 25
    for command in found:
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


MODELS = ROOT / "docs" / "models.md"


async def test_the_first_wish_works_as_it_is_written(fleet: Fleet, tmp_path: Path) -> None:
    """Beside the agents of `make demo`, which have a model of their own."""
    await fleet.start_balancer()
    await fleet.start_agent(name="demo-1")
    await fleet.start_agent(name="spare", model=None, slots=2, context_size=None)
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    start, *blocks = re.findall(r"```sh\n(.*?)```", MODELS.read_text(), re.DOTALL)[:4]
    assert "--name spare" in start
    told = [await typed(fleet, tmp_path, block) for block in blocks]
    wish, same, single = told
    assert "+ second from file://" in wish
    assert "spare: load second" in wish
    assert "applied" in wish
    assert "slot" in wish.split("applied")[1], "the model answered"
    assert same == "nothing to change\n"
    assert "~ second: replicas 1 -> all" in single
    assert "spare: load third" in single, "beside the second"
    assert "- third" in single
    listed = await fleet.view("models")
    assert [each["name"] for each in listed if each.get("source")] == ["second"]


async def typed(fleet: Fleet, folder: Path, block: str) -> str:
    """What a block of commands prints, typed in a folder."""
    places = {"ARRIERO_URL": fleet.inference, "ARRIERO_MANAGEMENT": fleet.management}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-e", "-c", block),
        cwd=folder,
        env=os.environ | places | {"PATH": path, "PWD": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0, output.decode()
    return output.decode()
