"""What operators see and steer: REST, events, metrics."""
