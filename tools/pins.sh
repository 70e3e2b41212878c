#!/usr/bin/env bash
# Makes requirements/*.txt from requirements/*.in: exact versions with the hashes of every platform's files, without
# the address of any index, so that the pins can be installed from whatever index or mirror a machine is set up with.
# Run by hand (`make pins`) when a version is to move; it needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
compile() {
    local name=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --custom-compile-command "make pins" "$@" -o "requirements/$name.txt" "requirements/$name.in"
}
compile runtime
compile operator
compile dev
compile protoc
compile protobuf5
compile protobuf6
compile demo --no-deps
if grep -nE '://|file:|--(index|find-links)' requirements/*.txt; then
    echo "pins: an address slipped into the lines above" >&2
    exit 1
fi
