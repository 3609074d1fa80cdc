"""`/v1/embeddings` and `/v1/rerank`, which take no slot."""
