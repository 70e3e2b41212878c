#!/usr/bin/env bash
# Runs the end-to-end tests (tests/kubernetes) with real pods, in a namespace of their own. Behind `make test-cluster`;
# arguments go to pytest.
#
# With KUBECONFIG set they run on whatever it says; the images have to be there (`make images`, then push or load them).
# Without it the local cluster is started and the images are built and loaded first; that needs root, Go and Debian.
#
# Three workers share the cluster, each with a namespace and an operator of its own: most of a test is waiting for pods. They
# take test by test, not file by file as other tests do, since what a file's tests share is the operator.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${KUBECONFIG:-}" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v go >/dev/null; then
        echo "test-cluster: left out: no KUBECONFIG is set, and starting the local cluster needs root and Go" >&2
        if [ -n "${CI:-}" ]; then exit 1; fi
        exit 0
    fi
    tools/cluster/cluster up
    eval "$(tools/cluster/cluster env)"
    tools/images.sh
fi
STERNA_TEST_CLUSTER=1 exec .venv/bin/python -m pytest tests/kubernetes --timeout 600 \
    -n "${WORKERS:-3}" -p no:tests.plugins.order --dist load --maxschedchunk 1 "$@"
