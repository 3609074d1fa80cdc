"""OpenAPI documents, generated from the types that validate requests and declare answers.

Lives here: bodies and answers as JSON schemas, operations, the document. An API declares its
answers beside what makes them; that returns those types, so mypy holds them together.
"""
