"""Ray Data: `examples/ray_data.py`, started twice."""

from pathlib import Path

import pytest

from arriero import client
from client_tests.program import ROOT, Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLE = str(ROOT / "examples" / "ray_data.py")
PACKAGES = str(Path(client.__file__).parent.parent.parent)
"""Where `arriero` lies."""

NUM = 24
MAKE = f"""
import pyarrow as pa, pyarrow.parquet as pq
ids = list(range({NUM}))
prompts = [f"What is a slot? {{i}}" for i in ids]
pq.write_table(pa.table({{"id": ids, "prompt": prompts}}), "in.parquet")
"""
SHOW = """
import json, pathlib, pyarrow.parquet as pq
for path in pathlib.Path("out").rglob("*.parquet"):
    for row in pq.read_table(path).to_pylist():
        print(json.dumps(row))
"""


async def test_what_is_answered_is_not_asked_again(desk: Desk) -> None:
    (await desk.run("ray-data", "python", "-c", MAKE)).ok()
    (desk.work / "out").mkdir()
    asked = [EXAMPLE, "in.parquet", "out", "--url", desk.arriero.url, "--max-tokens", "8"]
    env = {"PYTHONPATH": PACKAGES, "RAY_USAGE_STATS_ENABLED": "0"}
    (await desk.run("ray-data", "python", *asked, "--rows", "8", env=env)).ok()
    rows = (await desk.run("ray-data", "python", "-c", SHOW)).json_lines
    assert sorted(row["id"] for row in rows) == list(range(NUM))
    assert all(row["answer"] and row["error"] is None for row in rows)
    exchanges = desk.arriero.of("/api/v1/generate")
    assert len(exchanges) == NUM
    assert {each.json["priority"] for each in exchanges} == {"batch"}

    [torn, *_] = (desk.work / "out").rglob("*.parquet")
    torn.write_bytes(torn.read_bytes()[:100])  # as a kill would leave it
    (await desk.run("ray-data", "python", *asked, env=env)).ok()
    rows = (await desk.run("ray-data", "python", "-c", SHOW)).json_lines
    assert sorted(row["id"] for row in rows) == list(range(NUM))
    assert len(desk.arriero.of("/api/v1/generate")) < 2 * NUM
