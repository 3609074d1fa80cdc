"""A balancer starts on both its ports, says where, and stops in order."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from arriero.balancer.daemon import main
from arriero.balancer.settings import BalancerSettings
from arriero.shared.lifecycle import Shutdown, StartupError
from arriero.shared.tls.contexts import ClientFiles, client_context
from tests.authority import Authority
from tests.waiting import HANGS

ANYWHERE = {"inference_addr": "127.0.0.1:0", "management_addr": "127.0.0.1:0"}


class Running:
    """A balancer in this process; its addresses are those of its ready line."""

    def __init__(self, capsys: pytest.CaptureFixture[str], **settings: str) -> None:
        self._capsys = capsys
        self._shutdown = Shutdown()
        self._settings = BalancerSettings.model_validate(ANYWHERE | settings)
        self._task = asyncio.create_task(main(self._settings, self._shutdown))

    async def addresses(self) -> dict[str, str]:
        seen = ""
        while not seen.endswith("\n"):
            await asyncio.sleep(0)
            seen += self._capsys.readouterr().out
            if self._task.done():
                await self._task
        program, name, *pairs = seen.split()
        assert (program, name) == ("ready", "balancer")
        return dict(pair.split("=", 1) for pair in pairs)

    async def stop(self) -> None:
        self._shutdown.request("the test is over")
        await asyncio.wait_for(self._task, HANGS)


@asynccontextmanager
async def balancer(
    capsys: pytest.CaptureFixture[str], **settings: str
) -> AsyncIterator[dict[str, str]]:
    running = Running(capsys, **settings)
    yield await running.addresses()
    await running.stop()


async def test_a_store_that_cannot_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = Running(capsys, state=f"sqlite:///{tmp_path}/none/state.db")
    with pytest.raises(StartupError) as error:
        await running.addresses()
    assert str(error.value) == f"--state: there is no folder {tmp_path}/none; make it first"


async def test_a_store_is_open_while_the_balancer_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "state.db"
    async with balancer(capsys, state=f"sqlite:///{file}"):
        assert file.with_name("state.db-wal").exists()
    assert file.exists()
    assert not file.with_name("state.db-wal").exists(), "closed in order"


async def test_both_ports_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async with balancer(capsys) as addresses, aiohttp.ClientSession() as http:
        assert addresses.keys() == {"inference", "management"}
        for address in addresses.values():
            async with http.get(f"http://{address}/health") as response:
                assert response.status == 200
        async with http.get(f"http://{addresses['management']}/metrics") as response:
            assert "arriero_queue_limit 256.0" in await response.text()


@pytest.mark.parametrize(("setting", "status"), [({}, 404), ({"metrics_for_clients": "true"}, 200)])
async def test_metrics_are_for_clients_if_operators_say_so(
    capsys: pytest.CaptureFixture[str], setting: dict[str, str], status: int
) -> None:
    async with balancer(capsys, **setting) as addresses, aiohttp.ClientSession() as http:
        async with http.get(f"http://{addresses['inference']}/metrics") as response:
            assert response.status == status
            shown = await response.text()
        assert ("arriero_queue_limit 256.0" in shown) == (status == 200)
        async with http.get(f"http://{addresses['management']}/metrics") as response:
            assert response.status == 200


async def test_open_events_do_not_hold_up_the_stop(capsys: pytest.CaptureFixture[str]) -> None:
    async with aiohttp.ClientSession() as http:
        async with balancer(capsys, drain_timeout="1h") as addresses:
            events = await http.get(f"http://{addresses['management']}/api/v1/events")
            assert await events.content.readline() == b"event: snapshot\n"
        # Reaching its end in order means that it was closed, not cut.
        assert (await events.content.read()).endswith(b"\n\n")


async def test_a_drain_refuses_what_is_new_and_ends_what_waits_at_its_deadline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with aiohttp.ClientSession() as http:
        async with balancer(capsys, drain_timeout="50ms") as addresses:
            url = f"http://{addresses['inference']}/api/v1/generate"
            waiting = asyncio.create_task(http.post(url, json={"prompt": "Once"}))
            requests = f"http://{addresses['management']}/api/v1/requests"
            while not (await (await http.get(requests)).json())["requests"]:
                pass
        response = await waiting
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "shutting_down"


@pytest.mark.parametrize("flag", ["inference", "management"])
async def test_a_port_in_use_is_named_with_its_flag(
    capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    async with balancer(capsys) as addresses:
        taken = {f"{flag}_addr": addresses[flag]}
        with pytest.RaisesGroup(
            pytest.RaisesExc(StartupError, match=f"--{flag}-addr.*{addresses[flag]}")
        ):
            await Running(capsys, **taken).addresses()


async def test_with_a_certificate_both_ports_speak_tls(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = authority.sign("server")
    tls = client_context(ClientFiles(authority.ca), time.time())
    given = {"tls_cert": str(files.cert), "tls_key": str(files.key)}
    async with balancer(capsys, **given) as addresses, aiohttp.ClientSession() as http:
        assert addresses.pop("scheme") == "https"
        for address in addresses.values():
            async with http.get(f"https://{address}/health", ssl=tls) as response:
                assert response.status == 200
        async with http.get(f"https://{addresses['management']}/metrics", ssl=tls) as response:
            shown = await response.text()
        [line] = [each for each in shown.splitlines() if each.startswith("arriero_certificate")]
        assert 80 * 86400 < float(line.split()[1]) < 91 * 86400


async def test_a_certificate_that_cannot_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = Authority(tmp_path).sign("old", lives=timedelta(days=-1))
    given = {"tls_cert": str(files.cert), "tls_key": str(files.key)}
    with pytest.raises(StartupError, match=r"^--tls-cert: .* expired on"):
        await Running(capsys, **given).addresses()


async def test_it_does_not_start_where_anybody_could_use_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(StartupError, match=r"other hosts reach 0\.0\.0\.0:0"):
        await Running(capsys, management_addr="0.0.0.0:0").addresses()
