#!/usr/bin/env bash
# Is what the directory says what the accountant says? Without any data, and after somebody changed a digit.
set -euo pipefail
dpsgd=${DPSGD:-dpsgd}

"$dpsgd" train --net logistic --epochs 1 --target-epsilon 1 --quiet --out run > /dev/null
"$dpsgd" verify run | tee verified.txt
# What the officer signs can be computed without dpsgd.
digest=$(cd run && sha256sum facts.json ledger metrics.jsonl model.safetensors report.html summary.json | sha256sum)
grep "SHA-256 ${digest%% *}" verified.txt
sed -i 's/"updates": [0-9]*/"updates": 1/' run/summary.json
if "$dpsgd" verify run 2> found.txt; then exit 1; fi
grep "summary.json: updates is 1" found.txt
