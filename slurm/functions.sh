# slurm/functions.sh — what the job scripts share: a machine's modules, the --mpi that srun needs
# for the program's MPI library, and the record of what a job ran with. They source it before
# the machine's file; `trireme jobscript` copies it into its scripts.

say() { printf '%s %s: %s\n' "$(date '+%F %T')" "${SLURM_JOB_NAME:-job}" "$*"; }

# --- modules ---------------------------------------------------------------------------------
# `module load NAME...` in a machine's file ends the job where a module is missing: the ranks
# would not find their libraries, or find others. Where jobs do not inherit the submitter's
# environment (--export=NONE) bash may have no `module` yet, and the file that defines it for
# login shells is looked for; TRIREME_MODULES_INIT names it where it lies elsewhere.
take_site_module() {
  declare -F module >/dev/null && eval "site_$(declare -f module)"
}
start_modules() {
  local file
  unset -f module
  for file in "${TRIREME_MODULES_INIT:-}" ${LMOD_PKG:+"$LMOD_PKG/init/bash"} \
              ${MODULESHOME:+"$MODULESHOME/init/bash"} /etc/profile.d/{lmod,z00_lmod,modules}.sh \
              /usr/share/{lmod/lmod,modules,Modules}/init/bash /opt/cray/pe/lmod/lmod/init/bash; do
    [[ -r $file ]] || continue
    # shellcheck source=/dev/null
    source "$file"
    take_site_module && break
  done
  check_modules
  declare -F site_module >/dev/null
}
# shellcheck disable=SC2317  # by machines' files
check_modules() {
  module() {
    local name before status
    if ! declare -F site_module >/dev/null && ! start_modules; then
      say "the machine's file has 'module $*', and this node has no module command: name the" \
          "file that defines it in TRIREME_MODULES_INIT, or take that line out" >&2
      exit 2
    fi
    if [[ ${1:-} != load && ${1:-} != add ]]; then
      site_module "$@"
      return
    fi
    for name in "${@:2}"; do
      before=${LOADEDMODULES:-} status=0
      site_module load "$name" || status=$?
      # Old ones end with status 0 whatever happens; what is loaded already changes nothing.
      if ((status != 0)) ||
         [[ ${LOADEDMODULES:-} == "$before" && ":$before" != *":$name"* ]]; then
        say "'module load $name' of the machine's file failed: correct the name there" \
            "(module avail), or ask for the module" >&2
        exit 2
      fi
    done
  }
}
take_site_module || true
check_modules

# --- srun's --mpi ----------------------------------------------------------------------------
# By SLURM_MPI_TYPE, which srun reads where its command line has no --mpi. A machine's file has
# the last word, by either. Without one it is what goes with the program's MPI library.
choose_mpi() {
  local type
  [[ -z ${SLURM_MPI_TYPE:-} ]] || return 0
  type=$(sed -n 's/.*srun --mpi=\([a-z0-9_]*\).*/\1/p' <<<"$program_version")
  [[ -n $type ]] || return 0
  if srun --mpi=list 2>&1 | grep -qw "$type"; then
    export SLURM_MPI_TYPE=$type
  else
    say "this program's MPI library goes with srun --mpi=$type, which this SLURM has not (srun" \
        "--mpi=list): its own default is taken; the machine's file can set SLURM_MPI_TYPE"
  fi
}

# --- what the job runs with ------------------------------------------------------------------
# Into the log, for whoever reads it later. What cannot be found out is no reason to end.
record_job() {
  local nodes modules gpus
  program_version=$(timeout 60 "${trireme:?}" --version 2>&1) ||
    say "'$trireme --version' failed (status $?)"
  choose_mpi
  nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | paste -sd' ')
  modules=${LOADEDMODULES:-none}
  say "nodes: ${nodes:-${SLURM_JOB_NODELIST:-not known}}"
  say "modules: ${modules//:/ }"
  say "srun: --mpi=${SLURM_MPI_TYPE:-"(its default)"} where the launcher has none"
  say "program: $trireme"
  printf '%s\n' "$program_version"
  if command -v nvidia-smi >/dev/null &&
     gpus=$(nvidia-smi --query-gpu=index,name,driver_version,memory.total \
              --format=csv,noheader 2>/dev/null); then
    say "GPUs of node $(hostname): index, name, driver, memory"
    printf '%s\n' "$gpus"
  fi
}
