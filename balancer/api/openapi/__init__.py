"""OpenAPI documents, generated from the types that validate requests and declare answers.

This folder has the JSON schemas of bodies and answers, the operations, and the document. An API
declares the types of its answers next to the code that returns them, so mypy checks that both
agree.
"""
