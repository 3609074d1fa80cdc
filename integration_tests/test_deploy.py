"""The files of `deploy/`, each by its own tool, and against what the daemons really take."""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from arriero.agent.settings import AgentSettings
from arriero.balancer.ports import check_exposure
from arriero.balancer.settings import BalancerSettings
from arriero.shared.lifecycle import StartupError
from arriero.shared.quantities import parse_duration
from arriero.shared.settings.load import load
from arriero.shared.tls.contexts import ClientFiles, client_context
from integration_tests.daemons import DEADLINE, MODEL, Daemon, Fleet
from integration_tests.installed import installed
from tests.authority import Authority

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
SETTINGS = {"balancer": BalancerSettings, "agent": AgentSettings}
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
WORKLOADS = [each for each in MANIFESTS if each.stem != "agent-scaling"]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


CONTAINERFILES = sorted(each.name for each in (DEPLOY / "container").glob("Containerfile*"))


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def containers() -> list[tuple[Any, Any]]:
    """Each pod of the manifests with its container."""
    workloads = [
        each for path in WORKLOADS for each in documents(path) if "template" in each.get("spec", {})
    ]
    pods = [each["spec"]["template"]["spec"] for each in workloads]
    return [(pod, container) for pod in pods for container in pod["containers"]]


class TestContainers:
    @pytest.mark.parametrize("name", CONTAINERFILES)
    def test_lint_finds_nothing(self, name: str) -> None:
        found = run(BIN / "hadolint", DEPLOY / "container" / name)
        assert (found.returncode, found.stdout) == (0, "")

    @pytest.mark.parametrize("name", CONTAINERFILES)
    def test_all_that_a_wheel_holds_is_copied_and_let_through(self, name: str) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
        lines = re.findall(r"^COPY (?!--from)(.+) \S+$", self.text(name), re.MULTILINE)
        copied = {word for line in lines for word in line.split()}
        assert packages | {"pyproject.toml", "constraints.txt"} <= copied
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        assert {f"!{each}" for each in copied} <= set(ignored)
        assert all((ROOT / each).exists() for each in copied)

    def test_nothing_protects_a_container_unless_it_is_told_what(self) -> None:
        variables = dict(re.findall(r"(ARRIERO_BALANCER_\w+)=(\S+)", self.text("Containerfile")))
        environ = {name: variables[name] for name in variables if name.endswith("_ADDR")}
        assert len(environ) == 2
        with pytest.raises(StartupError, match="--insecure"):
            check_exposure(load(BalancerSettings, [], environ), has_keys=False)
        environ["ARRIERO_BALANCER_INSECURE"] = variables["ARRIERO_BALANCER_INSECURE"].strip(").")
        check_exposure(load(BalancerSettings, [], environ), has_keys=False)

    def text(self, name: str) -> str:
        return (DEPLOY / "container" / name).read_text()


class TestSystemd:
    @pytest.fixture
    def units(self, tmp_path: Path) -> list[Path]:
        """The units, with the programs where they are here."""
        paths = []
        for unit in sorted((DEPLOY / "systemd").glob("*.service")):
            text = unit.read_text()
            assert "/opt/arriero/bin/" in text
            paths.append(tmp_path / unit.name)
            paths[-1].write_text(text.replace("/opt/arriero/bin", str(BIN)))
        assert len(paths) == 2
        for drop_in in (DEPLOY / "systemd/tls").glob("*.service.d"):
            shutil.copytree(drop_in, tmp_path / drop_in.name)
        return paths

    def test_systemd_takes_them(self, units: list[Path]) -> None:
        found = run(installed("systemd-analyze"), "verify", *units)
        assert (found.returncode, found.stderr) == (0, "")

    def test_they_are_hardened(self, units: list[Path]) -> None:
        """Exposure is 0 (safe) to 100; a unit without any hardening has 96."""
        for unit in units:
            command = (
                installed("systemd-analyze"),
                "security",
                "--offline=true",
                "--threshold=25",
                unit,
            )
            found = run(*command)
            assert found.returncode == 0, found.stdout[-500:]

    @pytest.mark.parametrize("program", ["balancer", "agent"])
    def test_their_settings_are_settings_and_leave_time_to_drain(self, program: str) -> None:
        config = DEPLOY / "systemd" / f"{program}.toml"
        settings: Any = load(SETTINGS[program], ["--config", str(config)], {})
        unit = (DEPLOY / "systemd" / f"arriero-{program}.service").read_text()
        [stop] = re.findall(r"^TimeoutStopSec=(.+)$", unit, re.MULTILINE)
        assert settings.drain_timeout < parse_duration(stop)
        if program == "balancer":
            check_exposure(settings, has_keys=False)

    async def test_with_keys_and_tls_they_serve(self, fleet: Fleet, tmp_path: Path) -> None:
        """The commands of the units, with what systemd would have made for them."""
        host = SystemdHost(tmp_path)
        authority = Authority(host.etc)
        authority.sign("server", "localhost")
        await run_arriero(
            "keys", "bootstrap", "--state=memory://", f"--output={host.etc}/admin.key"
        )
        await fleet.open_client(client_context(ClientFiles(authority.ca), time.time()))
        fleet.balancer = await host.start(fleet, "balancer")
        port = {name: fleet.balancer.ready[name].rpartition(":")[2] for name in PORTS}
        url = {name: f"https://localhost:{port[name]}" for name in PORTS}
        places = (f"--management={url['management']}", f"--url={url['inference']}")
        admin = (*places, f"--tls-ca={authority.ca}", f"--key-file={host.etc}/admin.key")
        for role, name in (("agent", "agent"), ("inference", "app")):
            file = f"--output={host.etc}/{name}.key"
            await run_arriero("keys", "create", name, "--role", role, file, *admin)
        await host.start(fleet, "agent", port=port["management"])
        await run_arriero("models", "add", MODEL.absolute().as_uri(), "--name=demo", *admin)
        app = (*admin[:-1], f"--key-file={host.etc}/app.key")
        answer = await run_arriero("generate", "Once", "--model=demo", "--max-tokens=3", *app)
        assert answer.strip()
        async with fleet.http.get(f"{url['inference']}/v1/models") as response:
            assert response.status == 401, "without a key"


PORTS = ("inference", "management")


async def run_arriero(*argv: str) -> str:
    """What `arriero` prints; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *(BIN / "arriero", *argv), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, problem = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0, problem.decode()
    return output.decode()


class SystemdHost:
    """A folder with the places that the units and their settings name; what systemd does there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.etc = folder / "etc/arriero"
        self.etc.mkdir(parents=True)

    async def start(self, fleet: Fleet, program: str, *, port: str = "0") -> Daemon:
        """Start a unit's command, once its credentials are there."""
        unit = f"arriero-{program}.service"
        text = (DEPLOY / "systemd" / unit).read_text()
        for kind, place in (("State", "var/lib"), ("Cache", "var/cache")):
            for name in re.findall(rf"^{kind}Directory=(.+)$", text, re.MULTILINE):
                (self._folder / place / name).mkdir(parents=True)
        credentials = self._folder / "run/credentials" / unit
        credentials.mkdir(parents=True)
        drop_in = (DEPLOY / "systemd/tls" / f"{unit}.d/keys.conf").read_text()
        for name, file in re.findall(r"^LoadCredential=(\S+):(\S+)$", drop_in, re.MULTILINE):
            shutil.copy(self._here(file), credentials / name)
        settings = (DEPLOY / "systemd/tls" / f"{program}.toml").read_text()
        settings = settings.replace("llm.example.com", "localhost")
        settings = re.sub(r":806[01]\b", f":{port}", self._here(settings))
        (self.etc / f"{program}.toml").write_text(settings)
        [command] = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
        environment = " ".join(re.findall(r"^Environment=(.+)$", text, re.MULTILINE))
        environ = dict(each.split("=", 1) for each in self._here(environment).split())
        daemon = await fleet.start(*shlex.split(self._here(command)), env=environ)
        await daemon.until_ready()
        return daemon

    def _here(self, text: str) -> str:
        """`text` with the host's places in the folder, and the programs where they are."""
        text = text.replace("/opt/arriero/bin", str(BIN))
        return re.sub(r"(?<![\w.])/(?=(?:etc|run|var)/)", f"{self._folder}/", text)


class TestKubernetes:
    @pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
    def test_manifests_are_what_kubernetes_takes(self, path: Path) -> None:
        found = run(BIN / "kubernetes-validate", "--strict", path)
        assert found.returncode == 0, found.stdout + found.stderr
        assert found.stdout.count("passed") == len(documents(path))

    def test_the_check_fails_where_it_should(self, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text((DEPLOY / "kubernetes/balancer.yaml").read_text().replace("replicas", "r"))
        assert run(BIN / "kubernetes-validate", "--strict", wrong).returncode != 0

    def test_arguments_are_settings_and_leave_time_to_drain(self) -> None:
        programs = set()
        for pod, container in containers():
            program = container["name"]
            settings: Any = load(SETTINGS[program], container["args"], {})
            assert settings.drain_timeout < pod["terminationGracePeriodSeconds"]
            programs.add(program)
        assert programs == {"balancer", "agent"}

    def test_what_is_mounted_is_what_the_arguments_name_and_protects_the_ports(self) -> None:
        for pod, container in containers():
            settings: Any = load(SETTINGS[container["name"]], container["args"], {})
            folders = [Path(each["mountPath"]) for each in container["volumeMounts"]]
            given = settings.model_dump(include={"tls_cert", "tls_key", "tls_ca", "admin_key_file"})
            files = [file for file in given.values() if file is not None]
            assert files
            assert all(file.parent in folders for file in files)
            mounted = {each["name"] for each in container["volumeMounts"]}
            assert mounted == {each["name"] for each in pod["volumes"]}
            if container["name"] == "balancer":
                assert not settings.insecure
                check_exposure(settings, has_keys=settings.admin_key_file is not None)

    @pytest.mark.parametrize("name", ["balancer", "balancers"])
    def test_agents_dial_a_service_by_a_name_that_the_balancer_answers_to(self, name: str) -> None:
        parts = documents(DEPLOY / f"kubernetes/{name}.yaml")
        [pod] = [each["spec"]["template"]["spec"] for each in parts if each["kind"] == "Deployment"]
        args = pod["containers"][0]["args"]
        names = {each.removeprefix("--allowed-host=") for each in args if "allowed" in each}
        services = [each for each in parts if each["kind"] == "Service"]
        assert {each["metadata"]["name"] for each in services} <= names
        ports = {each["metadata"]["name"]: each["spec"]["ports"][0]["port"] for each in services}
        for _, container in containers():
            if container["name"] == "agent":
                settings = load(AgentSettings, container["args"], {})
                [url] = settings.balancer
                assert url == f"wss://arriero-management:{ports['arriero-management']}"
                assert settings.tls_ca is not None

    def test_several_balancers_share_a_store_and_agents_find_them_all(self) -> None:
        parts = documents(DEPLOY / "kubernetes/balancers.yaml")
        [deployment] = [each["spec"] for each in parts if each["kind"] == "Deployment"]
        assert deployment["replicas"] > 1
        [container] = deployment["template"]["spec"]["containers"]
        environ = {each["name"]: "postgresql://arriero@db/arriero" for each in container["env"]}
        settings: Any = load(BalancerSettings, container["args"], environ)
        assert settings.state.kind == "postgresql"
        assert settings.balancer_name == environ["ARRIERO_BALANCER_BALANCER_NAME"]
        services = {each["metadata"]["name"]: each for each in parts if each["kind"] == "Service"}
        assert services["arriero-management"]["spec"]["clusterIP"] == "None"

    async def test_it_scales_what_is_there_by_metrics_that_are_there(self, fleet: Fleet) -> None:
        [scaled] = documents(DEPLOY / "kubernetes/agent-scaling.yaml")
        target = scaled["spec"]["scaleTargetRef"]["name"]
        [deployment] = documents(DEPLOY / "kubernetes/agent-deployment.yaml")
        assert (deployment["kind"], deployment["metadata"]["name"]) == ("Deployment", target)
        assert "replicas" not in deployment["spec"]  # two would set them
        [trigger] = scaled["spec"]["triggers"]
        await fleet.start_balancer()
        await fleet.start_agent()
        async with fleet.http.get(f"{fleet.management}/metrics") as response:
            exported = await response.text()
        names = set(re.findall(r"arriero_\w+", trigger["metadata"]["query"]))
        assert len(names) == 2
        assert all(f"\n{name}" in exported for name in names)
        assert 'state="busy"' in exported
