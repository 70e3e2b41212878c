#!/usr/bin/env bash
# Prints where promtool is, which judges the rules of the charts (tests/charts/test_alerts.py): the one on the PATH, or
# Debian's, which is fetched once without installing it. Says why not, with status 1, where neither can be had.
set -euo pipefail
if command -v promtool; then exit 0; fi
into=${STERNA_CLUSTER_HOME:-$HOME/.cache/sterna-cluster}/promtool
if ! [ -x "$into/promtool" ]; then
    command -v apt-get >/dev/null || { echo "promtool is not installed, and only Debian's way to have it is known" >&2 && exit 1; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    if ! { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } >"$work/log" 2>&1; then
        echo "promtool cannot be fetched: $(tail -n 1 "$work/log")" >&2 && exit 1
    fi
    dpkg -x prometheus_*.deb "$work/tree"
    mkdir -p "$into"
    # Whole or not at all: another run may be looking for it.
    mv "$work/tree/usr/bin/promtool" "$into/promtool.$$"
    mv "$into/promtool.$$" "$into/promtool"
fi
echo "$into/promtool"
