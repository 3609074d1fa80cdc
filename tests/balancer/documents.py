"""The OpenAPI documents, made once for all tests that look something up in them."""

import json
from functools import cache

from arriero.balancer.api.document import inference_document
from arriero.balancer.management.operations import management_json
from tests.balancer.openapi_checks import Json

VERSION = "1.2"


@cache
def inference() -> Json:
    """Not to be changed, as the other."""
    return inference_document(VERSION)


@cache
def management() -> Json:
    document: Json = json.loads(management_json(VERSION))
    return document
