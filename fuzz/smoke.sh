#!/usr/bin/env bash
# Runs every built fuzz target over its seeds and some changes of them: that the targets work, not a search.
# usage: fuzz/smoke.sh FOLDER_OF_THE_BUILT_TARGETS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
targets=$(cd "$1" && pwd)
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
cargo run --quiet --locked -p selfspec-testkit --example seeds -- "$corpus"
mkdir -p "$corpus/chat_template"
cp crates/text/tests/it/templates/*.jinja "$corpus/chat_template"
for source in fuzz/fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  mkdir -p "$corpus/$target" # without seeds it starts from nothing
  seeds=$(find "$corpus/$target" -type f | wc -l)
  "$targets/$target" -seed=1 -runs=500 -rss_limit_mb=2048 "$corpus/$target" >"$corpus/$target.log" 2>&1 || {
    cat "$corpus/$target.log" >&2
    exit 1
  }
  echo "fuzz: $target: $seeds seeds"
done
