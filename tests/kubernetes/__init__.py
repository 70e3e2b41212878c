"""End-to-end tests with real pods; `make test-cluster` runs them."""
