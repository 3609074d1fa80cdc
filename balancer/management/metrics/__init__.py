"""Metrics for Prometheus: requests and latencies, the fleet's state, the balancer's health."""
