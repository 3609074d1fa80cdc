"""Starts a balancer and two agents, asks a question and streams the answer: `make demo`.

The model is a toy from the repository, or a real model (`--model`) that is downloaded once. The
demo runs until Ctrl-C or SIGTERM, and then drains and ends all processes. With `--once` the demo
stops after the answer; the exit code is 0 if the answer came.
"""

import argparse
import asyncio
import json
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from demo.packaged import NotFetched, path_of
from demo.word_wrap import WordWrap

MODEL = Path(__file__).parent / "arriero-demo.gguf"
BIN = Path(sys.executable).parent
NUM_AGENTS = 2
PREFERRED_PORTS = {"inference": 8061, "management": 8060}
START_DEADLINE = 60.0
EXIT_DEADLINE = 40.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A model to show, and its input.

    `asked` is a question, or the beginning of a text if `is_chat` is false.
    """

    asked: str
    context_size: int
    note: str
    is_chat: bool = True

    @property
    def body(self) -> dict[str, object]:
        """The request for `/api/v1/generate`."""
        if self.is_chat:
            return {"messages": [{"role": "user", "content": self.asked}], "temperature": 0}
        return {"prompt": self.asked, "temperature": 0, "max_tokens": 48}


TOY = "demo"
CHOICES = {
    TOY: Choice(
        asked="What does the balancer do?",
        context_size=2048,
        note="The model is a toy that knows Arriero alone. One that answers anything: "
        "make demo MODEL=smollm2 (93 MB, fetched once)",
    ),
    "smollm2": Choice(
        asked="What is a llama? Answer in two sentences.",
        context_size=4096,
        note="The model is SmolLM2 135M: quick, and often wrong.",
    ),
    "gemma3-270m": Choice(
        asked="A llama is an animal that",
        context_size=4096,
        note="The model is Gemma 3 270M. It goes on with a text; it has no chat template.",
        is_chat=False,
    ),
}


class DemoError(Exception):
    """The demo cannot continue. The message tells people why."""


class Child:
    """One daemon. Its log is a file that is shown if the daemon fails."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @classmethod
    async def start(cls, name: str, log: Path, *command: str) -> "Child":
        program, *arguments = command
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                BIN / program,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                # Ctrl-C reaches the whole terminal's process group; the daemons are to hear of it
                # once, from here, in the right order.
                start_new_session=True,
            )
        return cls(name, process, log)

    async def ready(self) -> dict[str, str]:
        """Return the fields of the daemon's ready line. Raises `DemoError`."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), START_DEADLINE)
        except TimeoutError:
            raise DemoError(f"{self.name} is not ready after {START_DEADLINE:.0f} s") from None
        if not line.startswith(b"ready "):
            raise DemoError(f"{self.name} did not start:\n{self.tail()}")
        return dict(word.split("=", 1) for word in line.decode().split() if "=" in word)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])

    async def stop(self) -> None:
        """Drain the daemon. Kill the daemon if draining takes too long."""
        if self.process.returncode is None:
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), EXIT_DEADLINE)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            print(
                f"{self.name} had to be killed; its log ended with\n{self.tail()}", file=sys.stderr
            )


class Demo:
    """The daemons of the demo.

    They end in the order of their start, so the balancer drains first.
    """

    def __init__(self, logs: Path, model: str = TOY) -> None:
        """Make a demo that is not started. `model` is one of `CHOICES`."""
        self.logs = logs
        self.model = model
        self.choice = CHOICES[model]
        self.children: list[Child] = []
        self.inference = ""
        self.management = ""

    async def start(self) -> None:
        model = MODEL if self.model == TOY else await asyncio.to_thread(path_of, self.model)
        balancer = await self._spawn(
            "balancer",
            "balancer",
            *("--inference-addr", preferred_address("inference")),
            *("--management-addr", preferred_address("management")),
        )
        addresses = await balancer.ready()
        self.inference = f"http://{addresses['inference']}"
        self.management = f"http://{addresses['management']}"
        agents = [
            await self._spawn(
                f"agent demo-{number}",
                "agent",
                *("--balancer", f"ws://{addresses['management']}"),
                *("--name", f"demo-{number}"),
                *("--model", str(model)),
                *("--context-size", str(self.choice.context_size)),
                *("--threads", "1"),
            )
            for number in range(1, NUM_AGENTS + 1)
        ]
        await asyncio.gather(*(agent.ready() for agent in agents))

    async def _spawn(self, name: str, *command: str) -> Child:
        child = await Child.start(name, self.logs / f"{name.replace(' ', '-')}.log", *command)
        self.children.append(child)
        return child

    async def stop(self) -> None:
        for child in self.children:
            await child.stop()

    async def until_one_dies(self) -> None:
        """Wait until a daemon ends by itself, and raise `DemoError`."""
        waits = {asyncio.create_task(child.process.wait()): child for child in self.children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        child = waits[done.pop()]
        raise DemoError(f"{child.name} ended by itself:\n{child.tail()}")


def preferred_address(which: str) -> str:
    """Return the address with the usual port if the port is free, or else with any port."""
    port = PREFERRED_PORTS[which]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{port}"


async def ask(inference: str, body: Mapping[str, object]) -> None:
    """Stream the answer to the terminal. Raises `DemoError`."""
    wrap = WordWrap(line_width())
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{inference}/api/v1/generate", json=body) as response,
    ):
        if response.status != 200:
            raise DemoError(f"the balancer answered {response.status}: {await response.text()}")
        async for line in response.content:
            event = json.loads(line)
            match event["event"]:
                case "token":
                    print(wrap.push(event["text"]), end="", flush=True)
                case "done":
                    print(f"{wrap.flush()}\n\n{summary(event)}")
                    return
                case "error":
                    raise DemoError(event["error"]["message"])
    raise DemoError("the stream ended without a last event")


def line_width() -> int:
    """Return the terminal's width. Other outputs get no line breaks."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def summary(done: dict[str, object]) -> str:
    usage, timings = done["usage"], done["timings"]
    assert isinstance(usage, dict)
    assert isinstance(timings, dict)
    return (
        f"({usage['completion_tokens']} tokens from agent {done['agent']} "
        f"in {timings['total_ms']:.0f} ms, the first after {timings['first_token_ms']:.0f} ms)"
    )


def show_addresses(demo: Demo) -> None:
    print(f"API        {demo.inference}/v1 (OpenAI), {demo.inference}/api/v1 (native)")
    print(f"Dashboard  {demo.management}/")
    print(f"Logs       {demo.logs}\n", flush=True)
    if words := other_ports({"inference": demo.inference, "management": demo.management}):
        print(f"{words}\n", flush=True)


def other_ports(urls: Mapping[str, str]) -> str:
    """Return a note for people if an address does not have the usual port; otherwise empty."""
    taken = [
        str(port) for which, port in PREFERRED_PORTS.items() if urlsplit(urls[which]).port != port
    ]
    if not taken:
        return ""
    return (
        f"Something else has port {' and port '.join(taken)}, maybe another demo: the examples of "
        "the README go there. Use the addresses above in their place."
    )


async def run(demo: Demo, *, once: bool) -> None:
    print(f"Starting a balancer and {NUM_AGENTS} agents on the {demo.model} model ...", flush=True)
    await demo.start()
    show_addresses(demo)
    print(f"{demo.choice.note}\n\n> {demo.choice.asked}\n", flush=True)
    await ask(demo.inference, demo.choice.body)
    if not once:
        print("\nUp until Ctrl-C.", flush=True)
        await demo.until_one_dies()


async def main(*, once: bool, model: str = TOY) -> int:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="arriero-demo-") as logs:
        async with AsyncExitStack() as stack:
            demo = Demo(Path(logs), model)
            stack.push_async_callback(demo.stop)
            work = asyncio.create_task(run(demo, once=once))
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, work.cancel)
            try:
                await work
            except asyncio.CancelledError:
                print("\nDraining ...", flush=True)
            except (DemoError, NotFetched) as error:
                print(f"demo: {error}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, prog="make demo")
    parser.add_argument("--once", action="store_true", help="stop after the answer")
    parser.add_argument(
        "--model", choices=CHOICES, default=TOY, help="a real model is fetched once"
    )
    given = parser.parse_args()
    sys.exit(asyncio.run(main(once=given.once, model=given.model)))
