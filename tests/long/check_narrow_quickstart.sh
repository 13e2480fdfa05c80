#!/usr/bin/env bash
# check_narrow_quickstart.sh TRIREME SOURCE — the run of ./quickstart in bf16 ends with a
# validation loss within 0.02 nats of fp32's. On one rank, which makes the same run. It says
# how much faster it was as well; what that must be, perf/run measures in turns (quickstart).
set -euo pipefail
trireme=$1 source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

# The text as ./quickstart has it: one verse a line, an empty line between chapters.
bible -f 'gen1:1-rev22:21' | awk '
  { split($1, label, ":"); if (NR > 1 && label[1] != chapter) print ""
    chapter = label[1]; sub(/^[^ ]+ /, ""); print }' >text.txt
"$trireme" tokenize --train-bpe 8192 --out corpus.h5 text.txt >/dev/null

loss_of() {  # TYPE: the validation loss after the last step
  "$trireme" train "$source/inputs/quickstart.yaml" --run-dir "$1" \
    --set "data.train=$place/corpus.h5" --set precision.compute="$1" --set run.sample_every=0 \
    >"$1.log" 2>&1 || { tail -n 40 "$1.log" >&2; exit 1; }
  sed -n 's/^{"validation": {"step": 1000,.*"loss": \([0-9.]*\).*/\1/p' "$1/train.jsonl"
}

fp32=$(loss_of fp32)
bf16=$(loss_of bf16)
printf 'validation loss: fp32 %s, bf16 %s\n' "$fp32" "$bf16"

seconds_of() {  # TYPE: of a step, the median over the records
  sed -n 's/^{"step":.*"seconds_median": \([0-9.e-]*\).*/\1/p' "$1/train.jsonl" | sort -g |
    awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}
awk -v a="$(seconds_of fp32)" -v b="$(seconds_of bf16)" 'BEGIN {
  if (!(a > 0 && b > 0)) exit 1
  printf "seconds of a step: fp32 %.4f, bf16 %.4f: %.2f times as fast\n", a, b, a / b }'

awk -v a="$fp32" -v b="$bf16" 'BEGIN {
  d = a - b; if (d < 0) d = -d; exit !(a > 0 && b > 0 && d <= 0.02) }' || {
  echo 'the losses are more than 0.02 nats apart'
  exit 1
}
