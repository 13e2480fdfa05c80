# slurm/functions.sh — what the job scripts share: a machine's modules, the --mpi that srun needs
# for the program's MPI library, and the record of what a job ran with. They source it before
# the machine's file; `trireme jobscript` copies it into its scripts.

say() { printf '%s %s: %s\n' "$(date '+%F %T')" "${SLURM_JOB_NAME:-job}" "$*"; }

# --- modules ---------------------------------------------------------------------------------
# `module load NAME...` in a machine file ends the job where a module is missing, as the ranks
# would not find their libraries, or find others. Where jobs do not inherit the submitter's
# environment (--export=NONE) bash may have no `module` yet: the file that a login shell would
# read for it is looked for; TRIREME_MODULES_INIT names it where it lies elsewhere.
take_site_module() {
  declare -F module >/dev/null || return 1
  eval "site_$(declare -f module)"
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
  checked_module
  declare -F site_module >/dev/null
}
# shellcheck disable=SC2317  # by machine files
checked_module() {
  module() {
    local name before status
    if ! declare -F site_module >/dev/null && ! start_modules; then
      say "the machine's file asks for 'module $*', but this node has no module command: name" \
          "the file that defines it in TRIREME_MODULES_INIT, or take that line out" >&2
      exit 2
    fi
    if [[ ${1:-} != load && ${1:-} != add ]]; then
      site_module "$@"
      return
    fi
    for name in "${@:2}"; do
      before=${LOADEDMODULES:-} status=0
      site_module load "$name" || status=$?
      # Old ones end with status 0 whatever happens.
      if ((status != 0)) ||
         [[ ${LOADEDMODULES:-} == "$before" && ":$before:" != *":$name"[:/]* ]]; then
        say "module load $name failed: 'module avail' shows what this machine has; the machine's" \
            "file says what is wanted" >&2
        exit 2
      fi
    done
  }
}
take_site_module || true
checked_module

# --- srun's --mpi ----------------------------------------------------------------------------
# By SLURM_MPI_TYPE, which srun reads where its command line has no --mpi. A machine file has
# the last word, by either; without one the program says what goes with its MPI library.
choose_mpi() {
  local type
  [[ -z ${SLURM_MPI_TYPE:-} ]] || return 0
  type=$("$trireme" --version 2>/dev/null | sed -n 's/.*srun --mpi=\([a-z0-9_]*\).*/\1/p')
  [[ -n $type ]] || return 0
  if srun --mpi=list 2>&1 | grep -qw "$type"; then
    export SLURM_MPI_TYPE=$type
  else
    say "this program's MPI wants srun --mpi=$type, which this SLURM does not have (srun" \
        "--mpi=list): SLURM's own default is taken. A machine file can say SLURM_MPI_TYPE"
  fi
}

# --- what the job ran with -------------------------------------------------------------------
# Into the log, for whoever reads it later. What cannot be found out is no reason to end.
record_job() {
  local nodes modules gpus
  nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | paste -sd' ')
  modules=${LOADEDMODULES:-}
  say "nodes: ${nodes:-${SLURM_JOB_NODELIST:-not known}}"
  say "modules: ${modules:+${modules//:/ }}${modules:-none}"
  say "program: $trireme"
  "$trireme" --version 2>&1 | sed 's/^/  /'
  say "srun --mpi: ${SLURM_MPI_TYPE:-SLURM\'s default}, where the launcher says none"
  if command -v nvidia-smi >/dev/null &&
     gpus=$(nvidia-smi --query-gpu=index,name,driver_version,memory.total \
              --format=csv,noheader 2>/dev/null); then
    say "GPUs of this node:"
    sed 's/^/  /' <<<"$gpus"
  fi
}
