#!/usr/bin/env bash
# Everything that other runs take a share of: every write of every story of the operator, thousands of seeds, fresh ones for
# each defect that is put back, mutants, hundreds of cycles of the soak. Behind `make test-all`; docs/reliability.md has the last result. It says what each part took and what it
# found; all parts run, whatever fails.
set -uo pipefail
cd "$(dirname "$0")/.."
PY=.venv/bin/python
SEED=$("$PY" -m tools.seeds)
# Nothing may be left out: what the machine lacks is a failure.
export SEED CI=true
ENGINE_SEEDS=${ENGINE_SEEDS:-20000}
MODEL_SEEDS=${MODEL_SEEDS:-2000}
results=()

part() {
    local name=$1 began=$SECONDS verdict=ok
    shift
    printf '\n==== %s\n' "$name"
    "$@" || verdict=FAILED
    results+=("$(printf '| %s | %s | %s min |' "$name" "$verdict" "$(((SECONDS - began + 30) / 60))")")
}

# In a shell of its own, since SEEDS is for nothing else.
with_seeds() { (export SEEDS=$1 && shift && "$@"); }

part "every test, every write of the operator's stories" env STERNA_ALL=1 tools/test.sh
part "the engine, $ENGINE_SEEDS seeds of each simulation" \
    with_seeds "$ENGINE_SEEDS" cargo test --locked --quiet --manifest-path core/Cargo.toml --lib
part "each defect of tests/defects put back, and looked for" "$PY" -m tools.defects hunt
part "mutants of log and state, 30 minutes at most" "$PY" -m tools.mutants
part "the engine against the model of a queue, $MODEL_SEEDS cases" \
    with_seeds "$MODEL_SEEDS" "$PY" -m pytest -q tests/core/test_queue_model.py
part "real brokers under load, with faults, ${SOAK_CYCLES:-300} cycles" "$PY" -m tests.soak --cycles "${SOAK_CYCLES:-300}"
part "pods, the long ones too" env STERNA_ALL=1 tools/test-cluster.sh

printf '\n==== %s, SEED=%s\n' "$(git describe --always --dirty --exclude='*')" "$SEED"
printf '%s\n' "${results[@]}"
! printf '%s\n' "${results[@]}" | grep -q FAILED
