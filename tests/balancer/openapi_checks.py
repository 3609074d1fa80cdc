"""What holds for every OpenAPI document of ours, whatever port it is of."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import jsonschema
from aiohttp import web

Json = dict[str, Any]


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    """Every method and path that `app` serves; HEAD comes with GET."""
    return {
        (route.method, re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.resource.canonical))
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


def routes_in(document: Json) -> set[tuple[str, str]]:
    """Every method and path that `document` describes."""
    return {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }


def check_whole(document: Json, title: str) -> None:
    """It names itself, the keys, and all that it refers to; each operation can be refused."""
    assert document["info"] == {"title": title, "version": version("arriero")}
    assert document["security"] == [{"bearer": []}, {"api_key": []}, {}]
    assert document["components"]["securitySchemes"].keys() == {"bearer", "api_key"}
    _check_references(document)
    _check_names(document)
    for methods in document["paths"].values():
        for operation in methods.values():
            assert {"401", "403", "500"} <= operation["responses"].keys()
            if "requestBody" in operation:
                assert {"400", "413", "503"} <= operation["responses"].keys()


def _check_references(document: Json) -> None:
    """Every reference leads somewhere, and every component is referred to."""
    wanted = {each.removeprefix("#/components/schemas/") for each in _references(document)}
    schemas = document["components"]["schemas"]
    assert wanted == schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def _check_names(document: Json) -> None:
    """No two operations have one name. Names are short: pydantic writes the module into those of
    types that two modules call the same."""
    names = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert len(names) == len(set(names))
    assert not [name for name in document["components"]["schemas"] if "__" in name]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name == "$ref":
                yield each
            elif name == "discriminator" and isinstance(each, dict) and "mapping" in each:
                yield from each["mapping"].values()
            else:
                yield from _references(each)
