# slurm/machines/cpu.sh — a plain CPU cluster: nodes of two sockets with 32 cores each.
#
# The #SBATCH lines say what a job asks for on this machine: `trireme jobscript` puts them at
# the head of the script that it writes; who submits slurm/train.sbatch gives them to sbatch.
# The rest is run in the job, before the ranks are started. For another machine copy the file.
#
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#
# Binding. One rank to a socket, a thread to a core: a rank's memory is its own socket's, and
# tensor ranks (neighbours in the grid) share a node. --cpu-bind=cores gives each rank the 32
# cores that SLURM counted for it, OMP_PROC_BIND=spread puts its threads on them. With one
# thread a core hyperthreads stay idle (--hint=nomultithread where SLURM counts those as CPUs).
# The network card hangs on one socket; MPI finds it. The run's banner shows what came of it.
#
# Modules have other names everywhere: TRIREME_MODULES="mpich hdf5-parallel" says which trireme
# was built with. `trireme jobscript` writes down those that are loaded when it is called.
# shellcheck disable=SC2086  # names with blanks between
[[ -z ${TRIREME_MODULES:-} ]] || module load $TRIREME_MODULES
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PROC_BIND=spread OMP_PLACES=threads
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # newer sruns do not take the job's
# srun's --mpi is what goes with the program's MPI library; to have another (srun --mpi=list):
# export SLURM_MPI_TYPE=pmix
# shellcheck disable=SC2034  # used by who sources this
launcher=(srun --kill-on-bad-exit=1 --cpu-bind=cores)
