#!/usr/bin/env bash
# Tries the upgrade from an earlier commit to what is checked out, with pods of the local cluster, under load: builds the
# earlier images and runs tests/kubernetes/test_from_earlier.py. `tools/upgrade-from.sh COMMIT`; minutes, most of them the
# earlier engine's build. No part of CI: which earlier version is meant is for people to say.
set -euo pipefail
cd "$(dirname "$0")/.."
COMMIT=${1:?which commit or tag is upgraded from}
shift
root=$PWD
earlier=$(mktemp -d)/earlier
trap 'git worktree remove --force "$earlier"' EXIT
git worktree add --quiet --detach "$earlier" "$COMMIT"
ln -s "$root/.venv" "$earlier/.venv"
tools/cluster/cluster up
(cd "$earlier" && TAG=earlier CLUSTER="$root/tools/cluster/cluster" BUILDER=cluster tools/images.sh broker operator)
STERNA_TEST_EARLIER=$earlier \
    STERNA_TEST_EARLIER_BROKER_IMAGE=localhost/sterna-broker:earlier \
    STERNA_TEST_EARLIER_OPERATOR_IMAGE=localhost/sterna-operator:earlier \
    WORKERS=1 tools/test-cluster.sh -k test_from_earlier "$@"
