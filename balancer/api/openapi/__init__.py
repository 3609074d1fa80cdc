"""OpenAPI documents, generated from the types that validate requests and declare answers.

Lives here: bodies and answers as JSON schemas, operations, the document. An API declares its
answers in its own `answer_types`; its serialisers return those types, so mypy holds them together.
May import: `shared`. Comes in: every API, and `management`.
"""
