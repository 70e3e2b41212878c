#!/usr/bin/env bash
# Prints the Python to build with, after making sure that all a build needs from outside is there. What is missing is
# said in one line, together with how to get it; nothing is installed here.
set -euo pipefail
missing=()
found=""
for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        found=$candidate
        break
    fi
done
[ -n "$found" ] || missing+=("Python >= 3.11 with venv (apt install python3 python3-venv, brew install python, or python.org)")

version=$(cargo --version 2>/dev/null | sed -nE 's/^cargo ([0-9]+)\.([0-9]+).*/\1 \2/p') || true
read -r major minor <<<"${version:-0 0}"
if ! { [ "$major" -gt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -ge 85 ]; }; }; then
    missing+=("cargo >= 1.85 (https://rustup.rs)")
fi
command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null ||
    missing+=("a C linker (apt install gcc, or xcode-select --install)")

if [ ${#missing[@]} -gt 0 ]; then
    joined=$(printf '; %s' "${missing[@]}")
    echo "setup: missing: ${joined:2}" >&2
    exit 1
fi
echo "$found"
