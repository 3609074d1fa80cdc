"""kosoku: Autobahn's cases over the balancer's WebSockets."""

import json

import pytest

from integration_tests.daemons import Fleet
from suite_tests.harness import judge, run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

_SOURCE = """
import asyncio, json, sys, kosoku

async def results():
    try:
        return await kosoku.run_fuzzingclient(sys.argv[1], concurrency=16)
    except kosoku.FailureError as failure:
        return failure.results

def told(each):
    return f"{each.behavior.value}, close {each.behavior_close.value}: {each.expectation}"

print(json.dumps({
    each.case_id: None if each.passed else told(each) for each in asyncio.run(results())
}))
"""

_NO_ECHO = "the case waits for an echo, and the socket answers with an error: this is no JSON"
_NO_COMPRESSION = "the sockets do not compress"

MAY_FAIL = {
    "1.*": _NO_ECHO,
    **{f"3.{case}": _NO_ECHO for case in (2, 3, 4)},
    **{f"4.{group}.{case}": _NO_ECHO for group in (1, 2) for case in (3, 4, 5)},
    **{f"5.{case}": _NO_ECHO for case in (3, 4, 5, 6, 7, 8, 15, 19, 20)},
    "6.*": f"{_NO_ECHO}, or no UTF-8; a bad text ends none of the socket's calls",
    "7.1.1": _NO_ECHO,
    "7.9.5": "aiohttp takes the code 1006 for one that a peer may send",
    "9.*": _NO_ECHO,
    "10.1.1": _NO_ECHO,
    "12.*": _NO_COMPRESSION,
    "13.*": _NO_COMPRESSION,
}
"""Why cases fail."""


@pytest.mark.parametrize("path", ["/api/v1/socket", "/v1/responses"])
async def test_frames_and_closes_are_as_autobahn_has_them(serving: Fleet, path: str) -> None:
    url = f"{serving.inference.replace('http', 'ws', 1)}{path}"
    _, output = await run("kosoku", "python", "-c", _SOURCE, url)
    judge(json.loads(output), MAY_FAIL)
