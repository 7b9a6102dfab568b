#!/usr/bin/env bash
# The lid closes, the process dies: the run continues, and every charged round counts.
set -euo pipefail
dpsgd=${DPSGD:-dpsgd}

"$dpsgd" train --net mlp --epochs 3 --target-epsilon 2 --quiet --out run > first.txt 2>&1 &
process=$!
until [ -s run/metrics.jsonl ] || ! kill -0 $process 2> /dev/null; do sleep 0.1; done
kill -9 $process 2> /dev/null || true
wait $process || true
if [ ! -s run/summary.json ]; then
  "$dpsgd" resume run --quiet | grep "ε at δ"
fi
"$dpsgd" verify run
# A slip in a file is explained.
echo 'epoch = 3' > slip.toml
if "$dpsgd" train --config slip.toml 2> slip.txt; then exit 1; fi
grep "did you mean epochs" slip.txt
