"""`python -m bench.publish NAME`: publishes a result that the docs quote.

Copies `bench/results/NAME.json`, which the next run overwrites, to `bench/published/` with the day
and the commit that it was measured at. Refuses where the code differs from that commit.
"""

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.store import RESULTS

PUBLISHED = Path(__file__).parent / "published"


def published(document: dict[str, Any], *, commit: str, day: str) -> dict[str, Any]:
    """What is published of a result."""
    return {"measured_on": day, "commit": commit, **document}


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", metavar="NAME", help="a result, as its file is named")
    name = parser.parse_args().name
    source = RESULTS / f"{name}.json"
    if not source.is_file():
        print(f"there is no result {source}; run its benchmark first", file=sys.stderr)
        return 1
    if changed := _git("status", "--porcelain", "--", "agent", "balancer", "shared", "bench/*.py"):
        print(f"commit first, since the result is of this code:\n{changed}", file=sys.stderr)
        return 1
    day = datetime.fromtimestamp(source.stat().st_mtime, UTC).date().isoformat()
    commit = _git("log", "-1", "--format=%h %s")  # the subject stays where a commit is moved
    document = published(json.loads(source.read_text()), commit=commit, day=day)
    PUBLISHED.mkdir(exist_ok=True)
    target = PUBLISHED / source.name
    target.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {target}")
    return 0


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
