#!/usr/bin/env bash
# check_few_steps.sh BUILD SOURCE MODEL — ./quickstart --model MODEL from the corpus to the
# samples, and once more, when it trains nothing; of its decks' steps there are 40.
#
# The program is that of BUILD. Dependencies and the build are left out: another build in the
# midst of other tests would take the program away from them. So tools/bootstrap and cmake do
# nothing here.
set -euo pipefail
build=$1 source=$2 model=$3
. "$source/tests/support/expect.sh"
case $model in
  gpt) name=quickstart sample='And the LORD said unto Moses' ;;
  bert) name=quickstart-bert sample='And it came to \[MASK\], when the king' ;;
  t5) name=quickstart-t5 sample='^And the LORD said unto' ;;
esac
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place"/{tools,inputs,stubs,build/release}
cp "$source/quickstart" "$place"
cp "$source/tools/phases.sh" "$place/tools"
cp "$source"/inputs/quickstart*.yaml "$place/inputs"
ln -s "$build/bin" "$build/CMakeCache.txt" "$place/build/release"
touch "$place/build/release/build.ninja"
cd "$place"
printf '#!/bin/sh\nexit 0\n' >stubs/cmake
chmod +x stubs/cmake
cp stubs/cmake tools/bootstrap
export PATH=$place/stubs:$PATH

deck=inputs/$name.yaml
sed -i -E 's/^( +steps:) [0-9]+/\1 40/; s/^( +validate_every:) [0-9]+/\1 20/
  s/^( +warmup:) [0-9]+/\1 10/' "$deck"
expect 'its steps' "$deck" '^  steps: 40 '
expect 'its validations' "$deck" '^  validate_every: 20$'

quickstart() {  # NAME: into NAME.log
  ./quickstart --model "$model" >"$1.log" 2>&1 && return
  printf './quickstart --model %s failed:\n' "$model"
  tail -n 60 "$1.log"
  exit 1
}

quickstart first
for phase in '1/5 dependencies' '2/5 build' '3/5 corpus' '4/5 training' '5/5 samples'; do
  expect 'a phase and its time' first.log "^== $phase: [0-9]+ s$"
done
expect 'the text' first.log 'of text: the King James Bible$'
expect 'a sample of each prompt' first.log '^.*In the beginning'
expect 'a sample of each prompt' first.log "$sample"
expect 'what to look at next' first.log "^  build/release/bin/trireme inspect runs/$name\$"
losses=$(sed -nE \
  's/^validation loss: ([0-9.]+) after step 20, ([0-9.]+) after step 40 .*/\1 \2/p' first.log)
printf 'validation losses after steps 20 and 40: %s\n' "$losses"
awk -v losses="$losses" \
  'BEGIN { split(losses, loss, " "); exit !(loss[2] > 0 && loss[2] < loss[1]) }' || {
  echo 'the second validation loss is not below the first'
  problems=$((problems + 1))
}
test -f "runs/$name/checkpoints/latest/manifest.json"
cp "runs/$name/train.jsonl" before.jsonl

quickstart second
expect 'the corpus, which is kept' second.log "3/5 corpus: runs/$name-data/corpus.h5 is there"
expect 'nothing left to train' second.log 'nothing to train'
expect 'a sample of each prompt' second.log "$sample"
cmp before.jsonl "runs/$name/train.jsonl"

exit $((problems > 0))
