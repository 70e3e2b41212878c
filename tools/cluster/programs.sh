# Builds the programs of the local cluster, into $BIN. Sourced by `cluster`, which says what $HOME_DIR is.
#
# All of them are one Go module (programs/), so that what several use is compiled once. programs/go.mod has the versions
# and programs/go.sum the hashes: a build looks nothing up, and downloads only what it compiles.
#
# A build works program by program, in the order in which tests need them, and each can be used as soon as it is there.
# Of several calls at once one builds, and the others wait for it. A more urgent call does not wait: it stops the other's
# compiler and goes on with what that one has compiled, and the other waits and goes on later. More urgent is who runs at
# a higher priority (see nice), and of two that are alike, who needs only the API server's programs.

PROGRAMS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/programs
K8S=$(sed -n 's|^\tk8s.io/kubernetes v\([^ ]*\).*|\1|p' "$PROGRAMS/go.mod")
HELM=$(sed -n 's|^\thelm.sh/helm/v4 v\([^ ]*\).*|\1|p' "$PROGRAMS/go.mod")
# Other versions are other programs: a checkout never takes those of another one for its own.
BIN=$HOME_DIR/bin-$K8S-$(cat "$PROGRAMS/go.mod" "$PROGRAMS"/*/main.go | sha256sum | cut -c1-8)
GO_MIN=1.26

API_PROGRAMS=(etcd kube-apiserver kubectl helm)
NODE_PROGRAMS=(kubelet kube-controller-manager kube-scheduler kube-proxy coredns pause)

# package NAME: what it is compiled from.
package() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    coredns | pause) echo "./$1" ;;
    *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}

# go_is_enough: whether Go is here and new enough, or new enough to fetch a newer one by itself.
go_is_enough() {
  command -v go >/dev/null || return 1
  local here minimum=$GO_MIN
  here=$(go env GOVERSION | sed 's/^go//')
  if [ "$(go env GOTOOLCHAIN)" = auto ]; then minimum=1.21; fi
  [ "$(printf '%s\n' "$minimum" "$here" | sort -V | head -1)" = "$minimum" ]
}

# missing all|api: the programs that are not built yet, a line each.
missing() {
  local name wanted=("${API_PROGRAMS[@]}")
  if [ "$1" = all ]; then wanted+=("${NODE_PROGRAMS[@]}"); fi
  for name in "${wanted[@]}"; do [ -x "$BIN/$name" ] || echo "$name"; done
}

# compile NAME RANK: status 1 when it was stopped for a more urgent call. Under another name first, so that a program that is
# there is whole. The compiler is a process group of its own, and holds no lock: 7 and 8 are closed for it.
compile() {
  local version=k8s.io/component-base/version
  local stamp="-s -w -X $version.gitVersion=v$K8S -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$K8S")"
  stamp+=" -X helm.sh/helm/v4/internal/version.version=v$HELM"
  # No debug information is made. Without inlining (-l) the compiler has a quarter less to do; what an API server does most
  # (decoding, copying, comparing objects) is compiled with it all the same. README.md has what was measured.
  local inlined flags=("-gcflags=all=-dwarf=false -l")
  for inlined in std k8s.io/apimachinery/... sigs.k8s.io/json/... sigs.k8s.io/structured-merge-diff/... google.golang.org/protobuf/...; do
    flags+=("-gcflags=$inlined=-dwarf=false")
  done
  say "building $1"
  rm -rf "$HOME_DIR/build"; mkdir -p "$HOME_DIR/build" "$BIN"
  # The compilers collect garbage less often than they would: they are short-lived, and there is memory enough.
  (cd "$PROGRAMS" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOGC=400 GOTMPDIR=$HOME_DIR/build \
    exec setsid go build -trimpath "${flags[@]}" -ldflags "$stamp" -o "$BIN/.$1.new" "$(package "$1")") 7>&- 8>&- 9>&- &
  local go=$! status=0
  trap 'kill -- -$go 2>/dev/null || true' EXIT
  echo "$go $2" >"$HOME_DIR/builder"
  wait "$go" || status=$?
  trap - EXIT
  rm -f "$HOME_DIR/builder"
  # 143: by SIGTERM, which a more urgent call sends.
  if [ "$status" = 143 ]; then say "making way for a more urgent call"; return 1; fi
  [ "$status" = 0 ] || die "go build failed for $1"
  mv "$BIN/.$1.new" "$BIN/$1" || die "cannot put $1 into $BIN"
}

# turn RANK: waits until it is this call's turn to build; stops the compiler of one with a higher rank. Who waits holds the
# lock `next`, so that a call that has made way does not take the turn again at once.
turn() {
  local pid rank
  exec 7>"$HOME_DIR/next" 8>"$HOME_DIR/building"
  flock -n 7 || { say "waiting for another call that builds"; flock 7; }
  until flock -n 8; do
    if read -r pid rank 2>/dev/null <"$HOME_DIR/builder" && [ "$rank" -gt "$1" ]; then kill -- "-$pid" 2>/dev/null || true; fi
    if flock -w 1 8; then break; fi
  done
  exec 7>&-
}

# build [all|api]: whatever is missing.
build() {
  local name wanted rank=$(($(nice) * 2))
  mapfile -t wanted < <(missing "${1:-all}")
  [ ${#wanted[@]} = 0 ] && return 0
  go_is_enough || die "Go $GO_MIN or later is needed to build ${wanted[*]}"
  if [ "${1:-all}" = all ]; then rank=$((rank + 1)); fi
  mkdir -p "$HOME_DIR"
  turn "$rank"
  for name in "${wanted[@]}"; do
    until [ -x "$BIN/$name" ]; do
      compile "$name" "$rank" || { exec 8>&-; turn "$rank"; }
    done
  done
  exec 8>&-
}
