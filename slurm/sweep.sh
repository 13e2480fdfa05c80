# slurm/sweep.sh — what slurm/scaling.sbatch and tools/scaling share: the first steps of each deck
# on each number of ranks, several times, and the report of them. Who sources it sets
# `trireme`, `steps`, `repeats`, `ranks`, `runs` (a directory), `batch_per_rank` (or nothing) and
# `home`, and defines launch COUNT COMMAND... .

# Lines of directory, number of ranks and deck. Each repeat has all of them once, in an order of
# its own: a machine that gets slower by and by, or is shared, does so for all alike.
plan_sweep() {
  local repeat deck name count
  for ((repeat = 1; repeat <= ${repeats:?}; repeat++)); do
    local -A decks_of=()  # how many decks have had a file name
    for deck in "$@"; do
      name=$(basename "$deck" .yaml)
      decks_of[$name]=$((${decks_of[$name]:-0} + 1))
      ((decks_of[$name] == 1)) || name+="_${decks_of[$name]}"
      for count in ${ranks:?}; do
        ((repeats == 1)) || printf '%s.%s\t%s\t%s\n' "$name-$count" "$repeat" "$count" "$deck"
        ((repeats > 1)) || printf '%s\t%s\t%s\n' "$name-$count" "$count" "$deck"
      done
    done | shuf
  done
}

# sweep DECK...: status 1 where a run failed, or none was measured. More options of each run are
# in `settings`, of the report in `report_options`.
sweep() {
  local measured=() status=0 name count deck run
  while IFS=$'\t' read -r name count deck <&3; do
    run=${runs:?}/$name
    echo "== $deck on $count ranks"
    if launch "$count" "${trireme:?}" train "$deck" --run-dir "$run" \
      --set run.stop_after="${steps:?}" --set run.log_every=$((steps < 4 ? 1 : steps / 4)) \
      --set run.validate_every=0 --set run.validate_samples=1 --set run.sample_every=0 \
      --set checkpoint.every=0 --set checkpoint.dir="$run/checkpoints" \
      ${batch_per_rank:+--set batch.global=$((batch_per_rank * count))} \
      "${settings[@]}" 3<&-; then
      measured+=("$run")
    else
      echo "$deck on $count ranks: status $?, left out of the table" >&2
      status=1
    fi
    rm -rf "$run/checkpoints"  # large, and of no use
  done 3< <(plan_sweep "$@")
  if ((${#measured[@]} == 0)); then
    echo "no run was measured: there is no table" >&2
    return 1
  fi
  mapfile -t measured < <(printf '%s\n' "${measured[@]}" | sort -V)
  "${home:?}/tools/report" "${measured[@]}" -o "$runs/report.html" --csv "$runs/tables" \
    "${report_options[@]}" || status=1
  return "$status"
}
