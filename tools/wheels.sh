#!/usr/bin/env bash
# Builds dist/sterna-*.whl and dist/sterna_core-*.whl from the pinned tools. Behind `make wheels`; `tools/wheels.sh sterna`
# or `core` builds one of them.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p dist
if [ "${1:-core}" = core ]; then
    # Others than what is built now are nobody's to ship.
    rm -f dist/sterna_core-*.whl
    .venv/bin/maturin build --release --locked --quiet --interpreter .venv/bin/python --manifest-path core/Cargo.toml --out dist
    # What simulations need is for tests: an engine that is shipped cannot be told to forget what it wrote.
    .venv/bin/python -m tools.shipped dist/sterna_core-*.whl
fi
if [ "${1:-sterna}" = sterna ]; then
    .venv/bin/python -m pip --quiet wheel --no-deps --no-build-isolation --wheel-dir dist .
fi
ls -l dist
