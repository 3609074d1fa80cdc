"""What Prometheus scrapes: requests and latencies, the fleet as it is, the balancer's health."""
