#!/usr/bin/env bash
# check_quickstart.sh BUILD SOURCE MODEL — ./quickstart --model MODEL as its user sees it,
# whole: a model that has learnt, samples, a second call that trains nothing; and of a gpt
# another text and --again. In a copy of the tree that shares its build.
#
# What its loss is to be, as a share of the corpus' unigram entropy: below what a model has that
# knows how often words occur and nothing else. A t5's target has two tokens in ten that need
# no knowledge.
#
# Such a model fills every gap with one word, the commonest. So a t5's three phrases are to have
# eight different words together: after 60 to 400 steps, when it has learnt which words follow
# each other besides, they have three to five ("and the LORD, and the LORD"), after 1000 six, and
# after all of them 12.
#
# A bert and a t5 are to take at most a quarter longer than a gpt on the same machine, by the
# seconds that ./quickstart tells of corpus, training and samples. The gpt's are those of its own
# test, which ctest runs before. Where there are none, or a model takes longer, as machines have
# other work, both are made one right after the other, and that counts.
set -euo pipefail
build=$1 source=$2 model=$3
. "$source/tests/support/expect.sh"
case $model in
  gpt) run=runs/quickstart most=0.78 sample='And the LORD said unto Moses' ;;
  bert) run=runs/quickstart-bert most=0.78 sample='And it came to \[MASK\], when the king' ;;
  t5) run=runs/quickstart-t5 most=0.7 sample='^And the LORD said unto[^<]*[a-z]' ;;
esac
most_time=1.25 gpt_seconds=$build/tests/quickstart_gpt.seconds
[[ $model != gpt ]] || rm -f "$gpt_seconds"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# As a user has them: all cores.
unset OMP_NUM_THREADS OMP_PROC_BIND GOMP_SPINCOUNT

tar -C "$source" --exclude ./build --exclude ./runs --exclude ./.git -cf - . | tar -C "$place" -xf -
mkdir "$place/build"
ln -s "$build" "$place/build/release"
cd "$place"

quickstart() {  # NAME MODEL ARGUMENTS...: into NAME.log
  local name=$1 model=$2; shift 2
  ./quickstart --model "$model" "$@" >"$name.log" 2>&1 && return
  printf './quickstart --model %s %s failed:\n' "$model" "$*"
  tail -n 60 "$name.log"
  exit 1
}

seconds() {  # FILE: of the phases that are a model's own
  sed -n 's,^== [345]/5 [a-z]*: \([0-9]*\) s$,\1,p' "$1" |
    awk '{ sum += $1 } END { if (NR != 3) exit 1; print sum }'
}

within() {  # SECONDS OF_GPT
  printf '%s took %s s, gpt %s s\n' "$model" "$1" "$2"
  awk -v mine="$1" -v gpt="$2" -v most="$most_time" \
    'BEGIN { exit !(mine > 0 && gpt > 0 && mine <= most * gpt) }'
}

expect_no_longer_than_gpt() {
  local mine gpts  # assigned apart: a log that tells no seconds ends the script
  mine=$(seconds first.log)
  if [[ -f $gpt_seconds ]] && within "$mine" "$(<"$gpt_seconds")"; then return; fi
  echo 'both, one right after the other:'
  rm -rf runs
  quickstart mine "$model"
  quickstart gpts gpt
  mine=$(seconds mine.log)
  gpts=$(seconds gpts.log)
  if within "$mine" "$gpts"; then return; fi
  echo "that is more than $most_time times as long"
  problems=$((problems + 1))
}

quickstart first "$model"
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
if [[ $model == t5 ]]; then
  prompts='In the beginning God created|And the LORD said unto|Blessed are'
  phrases=$(sed -nE "s/^($prompts)([^<]*)\$/\2/p" first.log)
  different=$(tr -cs 'A-Za-z' '\n' <<<"$phrases" | tr 'A-Z' 'a-z' |
    awk 'NF && !seen[$1]++ { count++ } END { print count + 0 }')
  printf 'phrases of %s different words:\n%s\n' "$different" "$phrases"
  if ((different < 8)); then
    echo 'a model that knows how often words occur, and which follow each other, writes as much'
    problems=$((problems + 1))
  fi
fi
test -f $run/checkpoints/latest/manifest.json
cp $run/train.jsonl before.jsonl

quickstart second "$model"
expect 'nothing left to train' second.log 'nothing to train'
expect 'a sample of each prompt' second.log "$sample"
cmp before.jsonl $run/train.jsonl
if [[ $model != gpt ]]; then
  expect_no_longer_than_gpt
  exit $((problems > 0))
fi
seconds first.log >"$gpt_seconds"

# Another text would be another run: refused, and nothing touched.
head -n 2000 runs/quickstart-data/text.txt >other.txt
if ./quickstart --text other.txt >other.log 2>&1; then
  echo 'another text was taken for a run that is there'
  problems=$((problems + 1))
fi
expect 'the way out' other.log '--again --text'
cmp before.jsonl runs/quickstart/train.jsonl

quickstart again gpt --again
expect 'where the run before went' again.log 'runs/quickstart.previous'
cmp before.jsonl runs/quickstart.previous/train.jsonl
expect 'training' again.log '^validation loss: '
test -f runs/quickstart/checkpoints/latest/manifest.json

exit $((problems > 0))
