#!/usr/bin/env bash
# Runs every test: the engine's own (cargo), then all the others (pytest, whose closing lines come last), several at once:
# two workers for each core, since tests with processes mostly wait. Behind `make test`; arguments go to pytest, and when
# there are any, only pytest runs, one test after the other unless they say `-n`.
#
# Some tests need etcd or a Kubernetes API server. The programs are built once; meanwhile the other tests run. Where that cannot
# be, the tests say that they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
PY=.venv/bin/python
SEED=$("$PY" -m tools.seeds)
export SEED
if [ $# -gt 0 ]; then exec "$PY" -m pytest --hypothesis-seed="$SEED" "$@"; fi
WORKERS=${WORKERS:-$((2 * $(nproc)))}

lacks_programs() { ! tools/cluster/cluster lacks api >/dev/null; }
pytest() { "$PY" -m pytest -q -n "$WORKERS" --hypothesis-seed="$SEED" "$@"; }

echo "== test: the engine (cargo test), SEED=$SEED"
cargo test --locked --quiet --manifest-path core/Cargo.toml --lib
cargo test --locked --quiet --manifest-path core/Cargo.toml --doc
echo "== test: defects that were mended, put back (tests/defects)"
"$PY" -m tools.defects replay
if lacks_programs; then
    echo "== test: all without etcd and API server (pytest), whose programs are built meanwhile (once)"
    mkdir -p build
    nice tools/cluster/cluster build api >build/api-programs.log 2>&1 &
    building=$!
    status=0
    pytest -m "not etcd and not api" || status=$?
    wait "$building" || { tail -n 5 build/api-programs.log && echo "test: going on without them"; }
    echo "== test: what needs an etcd or an API server (pytest)"
    pytest -m "etcd or api" || status=$?
    exit "$status"
fi
echo "== test: everything else (pytest)"
pytest
