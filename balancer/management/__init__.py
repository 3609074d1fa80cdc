"""What operators see and steer: REST, events, metrics, the dashboard's files."""
