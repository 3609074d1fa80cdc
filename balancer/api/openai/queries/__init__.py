"""`/v1/embeddings` and `/v1/rerank`, which take no slot.

May import: `openai`'s own files, `route`, `endpoint`, `common`, `transport`, `fields`, `fleet`.
Comes in: `api/app`.
"""
