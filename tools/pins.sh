#!/usr/bin/env bash
# Makes requirements/*.txt from requirements/*.in: exact versions with the hashes of every platform's files, without
# the address of any index, so that the pins can be installed from whatever index or mirror a machine is set up with.
# Run by hand (`make pins`) when a version is to move; it needs the network. A version in a .txt file stays while its
# .in file allows it: take the line away, or the file, for the newest.
#
# The order counts: each file takes the versions of those before it as given (`-c` in its .in file), so that no two name
# different versions of a package, and any of them can be installed on top of any other.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
    local name=$1
    shift
    .venv/bin/python -m tools.uv compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --custom-compile-command "make pins" "$@" -o "requirements/$name.txt" "requirements/$name.in"
}
compile uv
compile runtime
compile operator
compile audit
compile build
compile test
compile lint
compile protoc
compile protobuf5
compile protobuf6
compile moto
compile demo --no-deps
if grep -nE '://|file:|--(index|find-links)' requirements/*.txt; then
    echo "pins: an address slipped into the lines above" >&2
    exit 1
fi
