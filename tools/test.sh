#!/usr/bin/env bash
# Runs every test: the engine's own (cargo), then all the others (pytest, whose closing lines come last). Behind
# `make test`; arguments go to pytest, and when there are any, only pytest runs.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    echo "== test: the engine (cargo test)"
    cargo test --locked --quiet --manifest-path core/Cargo.toml --features sim
    echo "== test: everything else (pytest)"
fi
exec .venv/bin/python -m pytest "$@"
