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

# What runs that were killed have left in the local cluster goes: the operator that the documents install looks after every
# namespace, and is not uninstalled while there is a cluster anywhere.
sweep() {
    local left one
    left=$(kubectl get namespaces --output name | grep --extended-regexp '/(sterna-e2e-.*|messaging|sterna-system)$' || true)
    if [ -z "$left" ]; then return; fi
    echo "test-cluster: removes what an earlier run has left:" $left >&2
    kubectl delete --wait=false $left >&2
    for _ in $(seq 60); do
        for one in $left; do release "${one#*/}"; done
        if [ -z "$(kubectl get --ignore-not-found --output name $left)" ]; then return; fi
        sleep 1
    done
    echo "test-cluster: these did not go within a minute:" $left >&2
    exit 1
}

# release NAMESPACE: its objects wait for no operator, since there may be none any more.
release() {
    local kinds
    kinds=$(kubectl api-resources --api-group=sterna.dev --output name | paste --serial --delimiters=,)
    if [ -z "$kinds" ]; then return; fi
    kubectl --namespace "$1" get "$kinds" --ignore-not-found --output name | while read -r one; do
        kubectl --namespace "$1" patch "$one" --type merge --patch '{"metadata":{"finalizers":null}}' >/dev/null 2>&1 || true
    done
}

if [ -z "${KUBECONFIG:-}" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v go >/dev/null; then
        echo "test-cluster: left out: no KUBECONFIG is set, and starting the local cluster needs root and Go" >&2
        if [ -n "${CI:-}" ]; then exit 1; fi
        exit 0
    fi
    tools/cluster/cluster up
    eval "$(tools/cluster/cluster env)"
    # Whoever runs these tests has a share of this lock until it ends, and who can have it alone is alone.
    exec 8>"${KUBECONFIG%/*}/tests.lock"
    if flock --nonblock --exclusive 8; then sweep; fi
    flock --shared 8
    tools/images.sh
fi
STERNA_TEST_CLUSTER=1 exec .venv/bin/python -m pytest tests/kubernetes --timeout 600 \
    -n "${WORKERS:-3}" -p no:tests.plugins.order --dist load --maxschedchunk 1 "$@"
