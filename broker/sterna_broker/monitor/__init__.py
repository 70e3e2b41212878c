"""The monitor port: probes for whoever runs the broker, metrics for Prometheus."""
