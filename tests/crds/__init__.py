"""The kinds as a real Kubernetes API server sees them."""
