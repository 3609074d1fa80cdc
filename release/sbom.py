"""Makes the bill of materials of an agent, in CycloneDX's JSON, from its installed packages."""

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

_READ = """
import json
from importlib.metadata import distributions
print(json.dumps([
    {
        "name": each.metadata["Name"],
        "version": each.version,
        "licence": each.metadata["License-Expression"] or each.metadata["License"] or "",
        "libraries": [
            file.name for file in each.files or () if ".libs/" in str(file)
        ],
    }
    for each in distributions()
]))
"""

_TOOLS = frozenset({"pip", "setuptools"})
"""Packages of an empty environment, which the bill leaves out."""

VENDORED = "llama.cpp"
"""The name of the library whose sources llama-cpp-python contains, without a version."""

LONGEST_LICENCE = 200
"""Maximum characters of a licence's name.

Some packages give the full text of their licence instead.
"""


def packages(python: Path) -> list[dict[str, Any]]:
    """Return the packages that the interpreter `python` has installed, each package once."""
    done = subprocess.run([python, "-c", _READ], capture_output=True, check=True, text=True)
    found = {each["name"]: each for each in json.loads(done.stdout)}
    for name in _TOOLS & found.keys():
        del found[name]
    return [found[name] for name in sorted(found, key=str.lower)]


def bill(installed: list[dict[str, Any]], when: str) -> dict[str, Any]:
    """Return the bill with the time `when` (RFC 3339). `installed` must contain `arriero`."""
    [own] = [each for each in installed if each["name"] == "arriero"]
    components = [_component(each) for each in installed if each is not own]
    for each in installed:
        if each["name"] == "llama_cpp_python":
            components.append(_inside(VENDORED, each))
        components += [_inside(name, each) for name in each["libraries"]]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(installed))}",
        "version": 1,
        "metadata": {"timestamp": when, "component": {**_component(own), "type": "application"}},
        "components": components,
    }


def _component(package: dict[str, Any]) -> dict[str, Any]:
    name = package["name"].lower().replace("_", "-")
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{package['version']}",
        "name": package["name"],
        "version": package["version"],
        "purl": f"pkg:pypi/{name}@{package['version']}",
    }
    licence = package["licence"].strip()
    if licence and len(licence) <= LONGEST_LICENCE and "\n" not in licence:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def _inside(name: str, package: dict[str, Any]) -> dict[str, Any]:
    """Return the component for a library in a package's wheel."""
    return {
        "type": "library",
        "bom-ref": f"{package['name']}@{package['version']}#{name}",
        "name": name,
        "version": f"as in {package['name']} {package['version']}",
    }
