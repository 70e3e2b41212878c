#!/usr/bin/env bash
# Runs every test: the engine's own (cargo), then all the others (pytest, whose closing lines come last). Behind
# `make test`; arguments go to pytest, and when there are any, only pytest runs. Some tests need a Kubernetes API server:
# its programs are built once (4 minutes); where that cannot be, the tests say that they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    echo "== test: the engine (cargo test)"
    cargo test --locked --quiet --manifest-path core/Cargo.toml --features sim
    if tools/cluster/cluster lacks api >/dev/null; then :; else
        echo "== test: the programs of a Kubernetes API server (once)"
        tools/cluster/cluster build api || echo "test: going on without them"
    fi
    echo "== test: everything else (pytest)"
fi
exec .venv/bin/python -m pytest "$@"
