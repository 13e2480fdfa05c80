#!/usr/bin/env bash
# check_quickstart.sh BUILD SOURCE — ./quickstart as its user sees it, whole: a model that has
# learnt, samples, a second call that trains nothing, another text, --again. In a copy of
# the tree that shares its build.
set -euo pipefail
build=$1 source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset OMP_NUM_THREADS OMP_PROC_BIND GOMP_SPINCOUNT  # as a user has them: all cores

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

run() {  # NAME ARGUMENTS...: into NAME.log
  local name=$1; shift
  ./quickstart "$@" >"$name.log" 2>&1 && return
  printf './quickstart %s failed:\n' "$*"
  tail -n 60 "$name.log"
  exit 1
}

run first
expect 'a sample of each prompt' first.log '^.*In the beginning'
expect 'a sample of each prompt' first.log 'And the LORD said unto Moses'
expect 'what to look at next' first.log 'What to look at next'
expect 'its own validation loss' first.log '^validation loss: '
entropy=$(sed -n 's/^unigram entropy of the corpus: \([0-9.]*\).*/\1/p' first.log)
loss=$(sed -n 's/^validation loss: .* \([0-9.]*\) after step.*/\1/p' first.log)
printf 'validation loss %s, unigram entropy %s\n' "$loss" "$entropy"
awk -v loss="$loss" -v entropy="$entropy" 'BEGIN { exit !(loss > 0 && loss <= entropy - 1.3) }' || {
  echo 'the validation loss is not 1.3 nats below the unigram entropy'
  problems=$((problems + 1))
}
test -f runs/quickstart/checkpoints/latest/manifest.json
cp runs/quickstart/train.jsonl before.jsonl

run second
expect 'nothing left to train' second.log 'nothing to train'
expect 'a sample of each prompt' second.log 'And the LORD said unto Moses'
cmp before.jsonl runs/quickstart/train.jsonl

# Another text would be another run: refused, and nothing touched.
head -n 2000 runs/quickstart-data/text.txt >other.txt
if ./quickstart --text other.txt >other.log 2>&1; then
  echo 'another text was taken for a run that is there'
  problems=$((problems + 1))
fi
expect 'the way out' other.log '--again --text'
cmp before.jsonl runs/quickstart/train.jsonl

run again --again
expect 'where the run before went' again.log 'runs/quickstart.previous'
cmp before.jsonl runs/quickstart.previous/train.jsonl
expect 'training' again.log '^validation loss: '
test -f runs/quickstart/checkpoints/latest/manifest.json

exit $((problems > 0))
