"""`deploy/prometheus` and `deploy/grafana` with a real Prometheus that scrapes a balancer."""

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration_tests.daemons import Fleet, until
from integration_tests.installed import installed

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = DEPLOY / "grafana" / "arriero.json"
VARIABLES = {"$__rate_interval": "1m", "$job": ".*"}

pytestmark = pytest.mark.timeout(300)  # the first test may have to install Prometheus


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """What the dashboard and the rules ask, with the dashboard's variables filled in."""
    yield from (rule["expr"] for rule in rules())
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            yield text


def test_the_rules_are_rules() -> None:
    promtool = installed("promtool")
    found = subprocess.run(
        [promtool, "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert len(rules()) == len({rule["alert"] for rule in rules()}) >= 6


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    places = set()
    for panel in panels():
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places
        assert max(x for x, _ in cells) < 24
        places |= cells
        assert panel["title"]
        assert panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"]


async def test_a_prometheus_answers_everything_that_they_ask(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.start_balancer()
    await fleet.start_agent()
    body = {"prompt": "The balancer", "max_tokens": 8, "stream": False}
    async with fleet.http.post(f"{fleet.inference}/api/v1/generate", json=body) as response:
        assert response.status == 200
    named = {name for text in expressions() for name in re.findall(r"arriero_\w+", text)}
    named.remove("arriero_certificate_expires_in_seconds")  # which is there with TLS alone
    assert len(named) >= 15
    exported = ""

    async def are_exported() -> bool:
        """An agent's figures come once a second."""
        nonlocal exported
        async with fleet.http.get(f"{fleet.management}/metrics") as response:
            exported = await response.text()
        return all(f"\n{name}" in exported for name in named)

    await until(are_exported)
    promtool = installed("promtool")
    command = [promtool, "check", "metrics"]
    checked = await asyncio.to_thread(
        subprocess.run, command, input=exported, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr

    url = await start_prometheus(fleet, tmp_path)

    async def ask(query: str) -> Any:
        async with fleet.http.get(f"{url}/api/v1/query", params={"query": query}) as response:
            return await response.json()

    async def has_scraped() -> bool:
        answer = await ask('arriero_slots{state="total"}')
        return bool(answer["data"]["result"])

    await until(has_scraped)
    for text in expressions():
        answer = await ask(text)
        assert answer["status"] == "success", (text, answer)
    async with fleet.http.get(f"{url}/api/v1/rules") as response:
        groups = (await response.json())["data"]["groups"]
    assert {rule["name"] for group in groups for rule in group["rules"]} == {
        rule["alert"] for rule in rules()
    }


async def start_prometheus(fleet: Fleet, folder: Path) -> str:
    """One that scrapes the fleet's balancer each second; its address, once it answers."""
    prometheus = installed("prometheus")
    config = {
        "global": {"scrape_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "arriero",
                "static_configs": [{"targets": [fleet.management.removeprefix("http://")]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    await fleet.start(
        prometheus,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    async def is_ready() -> bool:
        try:
            async with fleet.http.get(f"{url}/-/ready") as response:
                return bool(response.status == 200)
        except OSError:
            return False

    await until(is_ready)
    return url
