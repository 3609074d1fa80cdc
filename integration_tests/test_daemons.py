"""What an operator gets wrong is one clear line that says what to do, never a traceback."""

import re
import signal
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from arriero.agent.settings import AgentSettings
from arriero.balancer.settings import BalancerSettings
from arriero.shared.settings.declaration import DaemonSettings
from integration_tests.corpus import generate, plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.nobody_else_notices.bystander import bystander


async def one_line(daemon: Daemon) -> tuple[int, str]:
    """The exit code and the only line on standard error."""
    code = await daemon.exit_code()
    assert len(daemon.stderr) == 1, daemon
    assert daemon.stdout == []
    return code, daemon.stderr[0]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("balancer", "--no-such-flag"), "--no-such-flag"),
        (("balancer", "--max-buffered-requests", "many"), "--max-buffered-requests"),
        (("balancer", "--drain-timeout", "-1"), "--drain-timeout"),
        (("balancer", "--inference-addr", "nonsense"), "--inference-addr"),
        (("agent", "--slots", "0"), "--slots"),
        (("agent", "--balancer", "http://127.0.0.1:1"), "--balancer"),
        (("agent", "--max-stall", "soon"), "--max-stall"),
        (("balancer", "--config", "/no/such/file.toml"), "/no/such/file.toml"),
    ],
)
async def test_a_bad_flag(fleet: Fleet, command: tuple[str, ...], named: str) -> None:
    code, line = await one_line(await fleet.start(*command))
    assert code == 2
    assert named in line


async def test_a_bad_variable(fleet: Fleet) -> None:
    daemon = await fleet.start("balancer", env={"ARRIERO_BALANCER_DRAIN_TIMEOUT": "soon"})
    code, line = await one_line(daemon)
    assert code == 2
    assert "ARRIERO_BALANCER_DRAIN_TIMEOUT" in line


async def test_flags_win_over_environment_over_file(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "balancer.toml"
    config.write_text('max-buffered-requests = "many"\n')
    code, line = await one_line(await fleet.start("balancer", "--config", str(config)))
    assert code == 2
    assert "max-buffered-requests" in line

    config.write_text('drain-timeout = "1m"\nmax-buffered-requests = 7\n')
    balancer = await fleet.start(
        "balancer",
        *("--config", str(config), "--inference-addr", "127.0.0.1:0"),
        env={
            "ARRIERO_BALANCER_MANAGEMENT_ADDR": "127.0.0.1:0",
            "ARRIERO_BALANCER_INFERENCE_ADDR": "nonsense:nonsense",
        },
    )
    # The flag hides the variable's nonsense, as the higher of the two.
    await balancer.until_ready()
    assert await balancer.terminate() == 0


@pytest.mark.parametrize("flag", ["inference_addr", "management_addr"])
async def test_a_port_in_use(fleet: Fleet, flag: str) -> None:
    first = await fleet.start_balancer()
    taken = first.ready[flag.removesuffix("_addr")]
    other = {"inference_addr": "127.0.0.1:0", "management_addr": "127.0.0.1:0"} | {flag: taken}
    second = await fleet.start(
        "balancer",
        *(word for name, value in other.items() for word in (f"--{name.replace('_', '-')}", value)),
    )
    code = await second.exit_code()
    assert code == 1
    assert taken in second.stderr[-1]
    assert f"--{flag.replace('_', '-')}" in second.stderr[-1]
    assert "Traceback" not in "\n".join(second.stderr)


@pytest.mark.parametrize("kind", ["missing", "folder", "junk", "truncated"])
@pytest.mark.asyncio(loop_scope="session")
async def test_a_model_that_cannot_be_loaded(bare_fleet: Fleet, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.gguf"
    match kind:
        case "folder":
            path.mkdir()
        case "junk":
            path.write_bytes(b"not a model at all" * 1000)
        case "truncated":
            path.write_bytes(MODEL.read_bytes()[: MODEL.stat().st_size // 2])
    agent = await bare_fleet.launch_agent(model=path)
    assert await agent.exit_code() == 1
    assert str(path) in agent.stderr[-1]
    assert "Traceback" not in "\n".join(agent.stderr)
    assert agent.stdout == []


async def test_an_unreachable_balancer_is_said_once_and_dialled_again(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer()
    addresses = balancer.ready
    assert await balancer.terminate() == 0

    agent = await fleet.launch_agent()
    line = await agent.until_line(agent.stderr, addresses["management"])
    assert "Traceback" not in "\n".join(agent.stderr)
    assert line

    await fleet.restart_balancer()
    await agent.until_ready()
    answer = await generate(fleet.http, fleet.inference, plain_cases()[0].body)
    assert answer.text == plain_cases()[0].answer
    assert sum("cannot reach" in line for line in agent.stderr) == 1


async def test_an_unreachable_balancer_does_not_hold_up_the_exit(fleet: Fleet) -> None:
    await fleet.start_balancer()
    await fleet.balancer.terminate()
    agent = await fleet.launch_agent()
    await agent.until_line(agent.stderr, "cannot reach")
    assert await agent.terminate() == 0


async def help_of(fleet: Fleet, program: str) -> str:
    daemon = await fleet.start(program, "--help")
    assert await daemon.exit_code() == 0
    assert daemon.stderr == []
    return "\n".join(daemon.stdout)


@pytest.mark.parametrize(
    ("program", "settings"), [("balancer", BalancerSettings), ("agent", AgentSettings)]
)
async def test_help_explains_every_flag(
    fleet: Fleet, program: str, settings: type[DaemonSettings]
) -> None:
    flags = re.findall(r"^  --([a-z0-9-]+).*\n {6}\S", await help_of(fleet, program), re.MULTILINE)
    declared = {name.replace("_", "-") for name in settings.model_fields}
    assert set(flags) == declared | {"config", "help", "version"}


async def test_help_explains_every_command(fleet: Fleet) -> None:
    commands = re.findall(r"^  ([a-z]+) +\S", await help_of(fleet, "arriero"), re.MULTILINE)
    assert sorted(commands) == sorted(each.name for each in entry_points(group="arriero.commands"))


async def test_a_hang_up_ends_nothing_and_opens_the_logs_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    """In all processes of each: a parent and its workers, a supervisor and its engine."""
    num_processes = {"balancer": 3, "agent": 2}
    files = {name: tmp_path / f"{name}.log" for name in num_processes}
    with files["balancer"].open("ab") as balancer_log, files["agent"].open("ab") as agent_log:
        balancer = await fleet.start_balancer(
            stderr=balancer_log.fileno(), workers=2, state=f"sqlite:///{tmp_path}/state.db"
        )
        agent = await fleet.launch_agent(stderr=agent_log.fileno())
        await agent.until_ready()
    async with bystander(fleet) as seen:
        for name, file in files.items():
            file.rename(tmp_path / f"{name}.log.1")
        balancer.signal(signal.SIGHUP)
        agent.signal(signal.SIGHUP)

        async def are_open() -> bool:
            texts = {
                name: file.read_text() if file.exists() else "" for name, file in files.items()
            }
            return {
                name: text.count("are read again") for name, text in texts.items()
            } == num_processes

        await until(are_open)
        await seen.until_more()
    await fleet.until_idle()

    async def is_logged() -> bool:
        return "request ended" in files["balancer"].read_text()

    await until(is_logged)
    assert "request ended" not in (tmp_path / "balancer.log.1").read_text()


async def test_ready_lines(fleet: Fleet) -> None:
    balancer = await fleet.start_balancer()
    assert balancer.stdout == [
        f"ready balancer inference={balancer.ready['inference']} "
        f"management={balancer.ready['management']}"
    ]
    agent = await fleet.start_agent(name="box")
    assert agent.stdout == ["ready agent name=box slots=4 model=arriero-demo"]


@pytest.mark.parametrize("program", ["balancer", "agent"])
async def test_what_is_forked_is_as_its_script(program: str) -> None:
    """Most tests start daemons as forks of a process that has imported them."""
    variable = f"ARRIERO_{program.upper()}_DRAIN_TIMEOUT"
    for arguments in (("--help",), ("--no-such-flag",), ()):
        seen = []
        for forks in (False, True):
            daemon = await Daemon.start(program, *arguments, env={variable: "soon"}, forks=forks)
            seen.append((await daemon.exit_code(), daemon.stdout, daemon.stderr))
        assert seen[0] == seen[1], arguments
    assert variable in seen[1][2][0]


async def test_a_fork_that_is_killed_says_so(fleet: Fleet) -> None:
    killed, told = await fleet.start_balancer(), await fleet.start_balancer()
    killed.signal(signal.SIGKILL)
    assert await killed.exit_code() == -signal.SIGKILL
    assert await told.terminate() == 0
