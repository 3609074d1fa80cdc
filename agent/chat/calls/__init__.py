"""Tool calls in a model's text: a parser for each notation, the functions of a request, and
validation of arguments against their schemas.
"""
