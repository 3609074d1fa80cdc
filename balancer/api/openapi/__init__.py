"""OpenAPI documents, made from the types that check requests.

May import: `shared`. Comes in: every API, and `management`.
"""
