"""The management API: REST, events, metrics, the dashboard's files."""
