"""What the HTTP APIs say of themselves: OpenAPI documents, made of what checks the requests."""
