"""The manifest models: what a queue, a topic or a bridge is, as a YAML document."""
