"""Ranks through Cohere's SDK, both versions; tells what came as JSON.

Argument: the URL.
"""

import json
import sys

import cohere
from cohere.core.api_error import ApiError

DOCUMENTS = ["A slot is a place.", "Llamas walk.", "The euro fell."]


def main() -> None:
    [url] = sys.argv[1:]
    asked = {"query": "What is a slot?", "documents": DOCUMENTS}
    client = cohere.ClientV2(api_key="unused", base_url=url)
    ranked = client.rerank(model="ranker", **asked)
    older = cohere.Client(api_key="unused", base_url=url).rerank(model="ranker", top_n=3, **asked)
    if [each.index for each in ranked.results] != [each.index for each in older.results]:
        raise ValueError((ranked, older))
    try:
        client.rerank(model="nobody", **asked, request_options={"max_retries": 0})
    except ApiError as error:
        refused = error.status_code
    told = {"best": [each.index for each in ranked.results], "refused": refused}
    json.dump(told, sys.stdout)


main()
