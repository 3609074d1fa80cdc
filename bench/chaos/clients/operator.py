"""An operator that changes the desired state all the time; what was accepted has to stay."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import aiohttp

from bench.chaos.clients.register import Register

PAUSE = 0.1
NOBODY = {"chaos": "nobody"}
"""Labels that no agent has, so that no agent loads the model."""


class Operator:
    """Asks for a model of another name each time."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/api/v1/desired-state"
        self._register = Register()
        self._number = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Changes it until `stop` is set."""
        while not stop.is_set():
            self._number += 1
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                await self._desire(self._number)
            await asyncio.sleep(PAUSE)

    async def _desire(self, number: int) -> None:
        self._register.asked(number)
        async with self._http.put(self._url, json=_state(number)) as response:
            await response.read()
            if response.status == HTTPStatus.OK:
                self._register.acknowledged(number)
            elif response.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
                self._register.refused(number)

    async def findings(self) -> list[str]:
        """What is wrong with the state as it is now. Raises `aiohttp.ClientError`."""
        async with self._http.get(self._url) as response:
            found = self._register.finding(_number(await response.json()))
        return [] if found is None else [found]


def _state(number: int) -> dict[str, Any]:
    model = {"name": f"desired-{number}", "source": "file:///nowhere.gguf"}
    return {"models": [model | {"agents": {"labels": NOBODY}}]}


def _number(state: dict[str, Any]) -> int:
    """0: the desired state was not changed yet."""
    names = [model["name"] for model in state["models"]]
    return int(names[0].removeprefix("desired-")) if names else 0
