#!/usr/bin/env bash
# Starts a Kubernetes with kind, builds our images with Docker and loads them into it. Behind `make kind-up`.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${KIND_CLUSTER:-sterna}
for program in docker kind kubectl helm; do
    command -v "$program" >/dev/null || { echo "kind-up: $program is needed" >&2; exit 1; }
done
kind get clusters | grep -qx "$name" || kind create cluster --name "$name" --wait 120s
BUILDER=docker tools/images.sh broker operator audit
version=$(.venv/bin/python -c 'import sterna; print(sterna.__version__)')
for role in broker operator audit; do kind load docker-image --name "$name" "localhost/sterna-$role:$version"; done
echo "kubectl config use-context kind-$name"
