#!/usr/bin/env bash
# Builds dist/sterna-*.whl and dist/sterna_core-*.whl from the pinned tools. Behind `make wheels`.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p dist
.venv/bin/maturin build --release --locked --quiet --interpreter .venv/bin/python --manifest-path core/Cargo.toml --out dist
.venv/bin/python -m pip --quiet wheel --no-deps --no-build-isolation --wheel-dir dist .
ls -l dist
