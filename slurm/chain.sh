#!/usr/bin/env bash
# slurm/chain.sh — several jobs, one after the other, each going on where the
# one before it stopped: for sites where a job cannot requeue itself, and to
# stand in the queue early.
#
#   slurm/chain.sh N [options of sbatch] SCRIPT [arguments]
#   slurm/chain.sh 5 --nodes=8 --time=4:00:00 slurm/train.sbatch my.yaml
#   slurm/chain.sh 5 my_job.sbatch             # as `trireme jobscript` writes it
#
# The jobs have one name, and run one at a time (--dependency=singleton). The one
# that is done, has done what run.stop_after asks, or fails, takes the others out
# of the queue. Prints their numbers.
set -euo pipefail
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
if [[ ! ${1:-} =~ ^[1-9][0-9]*$ || $# -lt 2 ]]; then
  echo "usage: chain.sh N [options of sbatch] SCRIPT [arguments]   (chain.sh --help)" >&2
  exit 2
fi
count=$1
shift
name=chain-$(date +%y%m%d-%H%M%S)-$$  # of no other job
jobs=()
for ((i = 0; i < count; ++i)); do
  if ! job=$(sbatch --parsable --job-name="$name" --dependency=singleton --no-requeue \
             --export=ALL,TRIREME_CHAIN="$name" "$@"); then
    echo "chain.sh: sbatch refused job $((i + 1)) of $count; taking back the others" >&2
    ((i == 0)) || scancel "${jobs[@]}"
    exit 1
  fi
  jobs+=("${job%%;*}")  # without the cluster's name
done
echo "${jobs[*]}"
echo "chain.sh: $count jobs named $name; to end the chain: scancel --name=$name" >&2
