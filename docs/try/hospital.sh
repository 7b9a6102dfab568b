#!/usr/bin/env bash
# A hospital's table: numbers, a category, missing values, a rare outcome. From the file to predictions.
set -euo pipefail
dpsgd=${DPSGD:-dpsgd}

# 3,000 made-up patients and 1,000 public ones.
awk 'BEGIN {
  srand(7)
  for (file = 0; file < 2; file++) {
    name = file ? "public.csv" : "patients.csv"
    print "id,age,marker,ward,ill" > name
    for (i = 0; i < (file ? 1000 : 3000); i++) {
      age = 20 + 60 * rand(); marker = exp(2 + rand()); ward = int(3 * rand())
      ill = rand() < 1 / (1 + exp(9 - 0.08 * age - 0.15 * marker))
      printf "p%d,%.0f,%s,w%d,%s\n", i, age, rand() < 0.1 ? "" : sprintf("%.2f", marker), ward, ill ? "yes" : "no" > name
    }
  }
}'
cat > run.toml <<'TOML'
data = "patients.csv"
test = "public.csv"
[schema]
ignore = ["id"]
[schema.label]
name = "ill"
categories = ["no", "yes"]
[[schema.column]]
name = "age"
range = [0, 120]
[[schema.column]]
name = "marker"
range = [0, 500]
[[schema.column]]
name = "ward"
categories = ["w0", "w1", "w2"]
TOML

"$dpsgd" train --config run.toml --target-epsilon 2 --quiet --out run | grep -A3 "WHAT IT LEARNED"
"$dpsgd" predict run public.csv > predictions.csv
head -n 3 predictions.csv
"$dpsgd" evaluate run --test public.csv | head -n 3
"$dpsgd" verify run
test -s run/model.py

# The test rows are patients as well: measured once, with noise, counted.
sed 's/^test =/private-test =/' run.toml > private.toml
"$dpsgd" train --config private.toml --target-epsilon 2 --quiet --out private | grep -A3 "WHAT IT LEARNED"

# Without any test set.
sed '/^test =/d' run.toml > untested.toml
"$dpsgd" train --config untested.toml --target-epsilon 2 --quiet --out untested | grep "no test set"
