"""Real brokers under load whose process is killed and whose disk fails, judged by what their clients were told."""
