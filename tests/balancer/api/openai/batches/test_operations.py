"""What the document says of files and batches, against what they take."""

import jsonschema
import pytest

from tests.balancer import documents

DOCUMENT = documents.inference()
GOOD = {"input_file_id": "f", "endpoint": "/v1/responses", "completion_window": "24h"}


@pytest.mark.parametrize(
    ("change", "is_right"),
    [({}, True), ({"completion_window": "90m"}, True), ({"endpoint": "/v1/models"}, False)],
)
def test_what_a_batch_takes_is_described(change: dict[str, str], is_right: bool) -> None:
    schema = {
        "$ref": "#/components/schemas/CreateBatchBody",
        "components": DOCUMENT["components"],
    }
    assert jsonschema.Draft202012Validator(schema).is_valid(GOOD | change) == is_right


def test_an_upload_is_a_form() -> None:
    content = DOCUMENT["paths"]["/v1/files"]["post"]["requestBody"]["content"]
    assert list(content) == ["multipart/form-data"]
    fields = DOCUMENT["components"]["schemas"]["FileBody"]["properties"]
    assert {"file", "purpose", "expires_after[seconds]"} <= fields.keys()
