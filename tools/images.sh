#!/usr/bin/env bash
# Builds the images of the broker, the operator and the audits, and for trying out the one of etcd, and says their sizes.
# Behind `make images`; `tools/images.sh broker` builds one of them, and `tools/images.sh prepare` only what does not depend on our
# code, which can be done beside anything else: the base, and all that is downloaded.
#
# The wheels are collected here, on the host, from the pins with their hashes, so that a build inside an image
# downloads nothing. Where Docker is, it builds (`BUILDER=docker`); otherwise buildah does, and the images are loaded
# into the local cluster (tools/cluster/cluster). BASE names another image that Python is taken from (tools/image_root.py).
set -euo pipefail
cd "$(dirname "$0")/.."
PY=.venv/bin/python
CLUSTER=${CLUSTER:-tools/cluster/cluster}
VERSION=$("$PY" -c 'import re,pathlib; print(re.search(r"__version__ = \"(.+?)\"", pathlib.Path("client/sterna/_version.py").read_text())[1])')
TAG=${TAG:-$VERSION}
REPOSITORY=${REPOSITORY:-localhost}
if [ -z "${BUILDER:-}" ]; then
    if docker info >/dev/null 2>&1; then BUILDER=docker; else BUILDER=cluster; fi
fi

# What each may take unpacked, in MB, its base included.
declare -A SIZES=([sterna-broker]=150 [sterna-operator]=200 [sterna-audit]=950)
# The images of the local cluster that they begin with: with Java besides Python where it is needed.
declare -A BASES=([audit]=java)

# pins ROLE PINS: build/images/ROLE with the pinned wheels, which stay from one build to the next, until the pins change.
pins() {
    local into=build/images/$1
    if ! [ -d "$into/pins" ] || ! cmp -s "requirements/$2.txt" "$into/pins.txt"; then
        rm -rf "$into"
        mkdir -p "$into/pins"
        # Spark comes as sources alone, which are packed here: half a gigabyte, the same for every Python.
        awk -v into="$into" '/^[a-z]/ { to = /^pyspark==/ ? "sources" : "wheels" } to { print > (into "/" to ".txt") }' \
            "requirements/$2.txt"
        "$PY" -m pip download --quiet --no-deps --require-hashes --only-binary=:all: --python-version 3.11 \
            --implementation cp --dest "$into/pins" --requirement "$into/wheels.txt"
        if [ -f "$into/sources.txt" ]; then
            "$PY" -m pip wheel --quiet --no-deps --require-hashes --no-build-isolation --wheel-dir "$into/pins" \
                --requirement "$into/sources.txt"
        fi
        cp "requirements/$2.txt" "$into/pins.txt"
    fi
    cp "$1/Dockerfile" tools/image_root.py "$into/"
}

# ours ROLE: our own wheels beside them.
ours() {
    local into=build/images/$1/ours
    rm -rf "$into"
    mkdir "$into"
    cp dist/sterna-"$VERSION"-*.whl "$into"
    if [ "$1" != operator ]; then cp dist/sterna_core-"$VERSION"-*.whl "$into"; fi
}

# build NAME CONTEXT TAG BASE: the image REPOSITORY/NAME:TAG; BASE is which of the local cluster's it begins with.
build() {
    local name=$REPOSITORY/$1 tag=$3 told size
    case $BUILDER in
    docker)
        docker build --quiet ${BASE:+--build-arg BASE="$BASE"} -t "$name:$tag" "$2" >/dev/null
        told="image $name:$tag $(($(docker image inspect -f '{{.Size}}' "$name:$tag") / 1000000)) MB"
        ;;
    cluster)
        "$CLUSTER" base "$4"
        told=$("$CLUSTER" image "$name:$tag" "$2" --build-arg BASE="${BASE:-localhost/$4-base:1}")
        ;;
    *) echo "images: BUILDER is docker or cluster, not '$BUILDER'" >&2 && exit 2 ;;
    esac
    echo "$told"
    size=${told% MB}
    size=${size##* }
    if [ "${size%.*}" -ge "${SIZES[$1]:-1000}" ]; then
        echo "images: $1 is to stay below ${SIZES[$1]} MB, everything included (docs/kubernetes/images.md)" >&2 && exit 1
    fi
}

role() {
    pins "$1" "$2"
    ours "$1"
    build "sterna-$1" "build/images/$1" "$TAG" "${BASES[$1]:-python}"
}

# The etcd that the operator runs for trying things out: the local cluster's own, as an image, which the node also knows
# by the name that the chart gives: nothing can be pulled there. Elsewhere that name is etcd's own image, so with Docker
# there is nothing to do.
etcd() {
    if [ "$BUILDER" = docker ]; then return 0; fi
    local binary version charted
    binary=$("$CLUSTER" bin)/etcd
    version=$("$binary" --version | sed -n 's/^etcd Version: //p')
    mkdir -p build/images/etcd
    cp "$binary" build/images/etcd/etcd
    cp tools/cluster/etcd.Dockerfile build/images/etcd/Dockerfile
    build sterna-etcd build/images/etcd "$version" python
    charted=$(sed -n 's/^etcdImage: //p' charts/sterna-operator/values.yaml)
    if [ "${charted##*:}" != "v$version" ]; then
        echo "images: the chart's etcd is $charted and the local one $version: they are to be the same" >&2 && exit 1
    fi
    # Without a node, as where only images are wanted, there is nobody to tell.
    if "$CLUSTER" has-node; then "$CLUSTER" tag "$REPOSITORY/sterna-etcd:$version" "$charted"; fi
}

# What needs none of our wheels. The layer with the pins is kept, and so is a part of the images.
prepare() {
    local role base
    for role in broker:runtime operator:operator audit:audit; do
        pins "${role%:*}" "${role#*:}"
        base=${BASES[${role%:*}]:-python}
        if [ "$BUILDER" = cluster ]; then
            "$CLUSTER" base "$base"
            "$CLUSTER" layer pins "build/images/${role%:*}" --build-arg BASE="${BASE:-localhost/$base-base:1}"
        fi
    done
}

if [ $# -eq 0 ]; then set -- broker operator audit etcd; fi
case " $* " in *" broker "* | *" operator "* | *" audit "*) tools/wheels.sh sterna >/dev/null ;; esac
case " $* " in *" broker "* | *" audit "*) tools/wheels.sh core >/dev/null ;; esac
for one in "$@"; do
    case $one in
    broker) role broker runtime ;;
    operator) role operator operator ;;
    audit) role audit audit ;;
    etcd) etcd ;;
    prepare) prepare ;;
    *) echo "images: broker, operator, audit, etcd or prepare, not '$one'" >&2 && exit 2 ;;
    esac
done
