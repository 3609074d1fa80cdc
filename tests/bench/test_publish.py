import json
import re
from pathlib import Path

from bench.publish import PUBLISHED, published

ROOT = Path(__file__).parents[2]


def test_a_result_says_when_and_of_what_it_was_measured() -> None:
    document = published({"machine": {"cores": 2}}, commit="0123456789", day="2026-11-24")
    assert document == {
        "measured_on": "2026-11-24",
        "commit": "0123456789",
        "machine": {"cores": 2},
    }


def test_docs_name_each_published_result_and_no_other() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"bench/published/([\w.-]+\.json)", pages))
    files = {path.name: json.loads(path.read_text()) for path in PUBLISHED.glob("*.json")}
    assert files.keys() == named
    for document in files.values():
        assert document.keys() >= {"measured_on", "commit", "machine"}
