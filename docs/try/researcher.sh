#!/usr/bin/env bash
# Samplers at the same noise, on MNIST with a linear model; what each leaks is in its summary.
set -euo pipefail
dpsgd=${DPSGD:-dpsgd}

common=(--net logistic --epochs 2 --noise-multiplier 2 --seed 1 --quiet --json)
for sampling in subsample poisson allocate; do
  "$dpsgd" train "${common[@]}" --sampling "$sampling" --groups 1024 --out "$sampling" > "$sampling.json"
  grep -E '"(test_accuracy|test_loss)"' "$sampling.json"
done
"$dpsgd" curve --config subsample/config.toml --config poisson/config.toml --out curves.svg
grep -q "subsample (" curves.svg
# A grid with seeds, side by side; the privacy of searching is stated.
"$dpsgd" sweep --net logistic --epochs 1 --noise-multiplier 4 --groups 4096 --vary step=1,4 --seeds 2 --jobs 2 --ledger none --quiet \
  --out sweep > sweep.txt
grep "WHAT THE SEARCH LEAKS" sweep.txt
test "$(wc -l < sweep/sweep.csv)" -eq 5
"$dpsgd" compare sweep/runs/*seed=1 --out compare.html | grep "test accuracy"
# Names of other libraries are understood.
if "$dpsgd" train --batch-size 256 2> tip.txt; then exit 1; fi
grep -- "--groups" tip.txt
