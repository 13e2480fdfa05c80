#!/usr/bin/env bash
# check_quickstart.sh BUILD SOURCE MODEL — ./quickstart --model MODEL as its user sees it,
# whole: a model that has learnt, samples, a second call that trains nothing; and of a gpt
# another text and --again. In a copy of the tree that shares its build.
#
# What its loss is to be, as a share of the corpus' unigram entropy: below what a model has that
# knows how often words occur and nothing else. A t5's target has two tokens in ten that need
# no knowledge.
set -euo pipefail
build=$1 source=$2 model=$3
case $model in
  gpt) run=runs/quickstart most=0.78 sample='And the LORD said unto Moses' ;;
  bert) run=runs/quickstart-bert most=0.78 sample='And it came to \[MASK\], when the king' ;;
  t5) run=runs/quickstart-t5 most=0.7 sample='^And the LORD said unto[^<]*[a-z]$' ;;
esac
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# As a user has them: all cores.
unset OMP_NUM_THREADS OMP_PROC_BIND GOMP_SPINCOUNT MPIR_CVAR_POLLS_BEFORE_YIELD

problems=0
expect() {  # WHAT FILE PATTERN
  grep -qE -- "$3" "$2" && return
  printf 'missing: %s (%s) in:\n' "$1" "$3"
  tail -n 60 "$2"
  problems=$((problems + 1))
}

tar -C "$source" --exclude ./build --exclude ./runs --exclude ./.git -cf - . | tar -C "$place" -xf -
mkdir "$place/build"
ln -s "$build" "$place/build/release"
cd "$place"

quickstart() {  # NAME ARGUMENTS...: into NAME.log
  local name=$1; shift
  ./quickstart --model "$model" "$@" >"$name.log" 2>&1 && return
  printf './quickstart --model %s %s failed:\n' "$model" "$*"
  tail -n 60 "$name.log"
  exit 1
}

quickstart first
expect 'a sample of each prompt' first.log '^.*In the beginning'
expect 'a sample of each prompt' first.log "$sample"
expect 'what to look at next' first.log 'What to look at next'
expect 'its own validation loss' first.log '^validation loss: '
entropy=$(sed -n 's/^unigram entropy of the corpus: \([0-9.]*\).*/\1/p' first.log)
loss=$(sed -n 's/^validation loss: .* \([0-9.]*\) after step.*/\1/p' first.log)
printf 'validation loss %s, unigram entropy %s\n' "$loss" "$entropy"
awk -v loss="$loss" -v most="$most" -v entropy="$entropy" \
  'BEGIN { exit !(loss > 0 && loss <= most * entropy) }' || {
  echo "the validation loss is more than $most of the unigram entropy"
  problems=$((problems + 1))
}
test -f $run/checkpoints/latest/manifest.json
cp $run/train.jsonl before.jsonl

quickstart second
expect 'nothing left to train' second.log 'nothing to train'
expect 'a sample of each prompt' second.log "$sample"
cmp before.jsonl $run/train.jsonl
[[ $model == gpt ]] || exit $((problems > 0))

# Another text would be another run: refused, and nothing touched.
head -n 2000 runs/quickstart-data/text.txt >other.txt
if ./quickstart --text other.txt >other.log 2>&1; then
  echo 'another text was taken for a run that is there'
  problems=$((problems + 1))
fi
expect 'the way out' other.log '--again --text'
cmp before.jsonl runs/quickstart/train.jsonl

quickstart again --again
expect 'where the run before went' again.log 'runs/quickstart.previous'
cmp before.jsonl runs/quickstart.previous/train.jsonl
expect 'training' again.log '^validation loss: '
test -f runs/quickstart/checkpoints/latest/manifest.json

exit $((problems > 0))
