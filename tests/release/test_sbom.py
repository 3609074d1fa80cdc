"""The bill of materials, of this very environment."""

import sys
from pathlib import Path

from release.sbom import bill, packages

WHEN = "2026-01-02T03:04:05Z"


def test_what_an_agent_runs_is_in_it() -> None:
    installed = packages(Path(sys.executable))
    found = bill(installed, WHEN)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["name"] == "arriero"
    by_name = {each["name"]: each for each in found["components"]}
    assert by_name["pydantic"]["purl"].startswith("pkg:pypi/pydantic@")
    assert {"llama_cpp_python", "llama.cpp"} < by_name.keys()
    assert not {"arriero", "pip"} & by_name.keys()
    references = [each["bom-ref"] for each in found["components"]]
    assert len(set(references)) == len(references)
    assert bill(installed, WHEN) == found


def test_libraries_that_a_wheel_brings_along() -> None:
    own = {"name": "arriero", "version": "1", "licence": "Apache-2.0", "libraries": []}
    other = {"name": "a_b", "version": "2", "licence": "x" * 999, "libraries": ["libgomp.so.1"]}
    found = bill([other, own], WHEN)
    assert [each["name"] for each in found["components"]] == ["a_b", "libgomp.so.1"]
    assert found["components"][0]["purl"] == "pkg:pypi/a-b@2"
    assert "licenses" not in found["components"][0]
    assert found["components"][1]["version"] == "as in a_b 2"
    licence = found["metadata"]["component"]["licenses"]
    assert licence == [{"license": {"name": "Apache-2.0"}}]
