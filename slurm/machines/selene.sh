# slurm/machines/selene.sh — nodes with eight A100 and eight InfiniBand cards, as NVIDIA's
# Selene and other DGX A100 systems have them: two EPYC 7742 (64 cores in four NUMA domains
# each, two hardware threads a core), GPUs by NVSwitch.
#
# Written from public descriptions: the DGX A100 system architecture, the `nvidia-smi topo -m`
# of such nodes as published, and NVIDIA's MLPerf training scripts for them, which bind each
# rank to four of the same eight cores. Not tried there: compare that command's output and
# the run's banner with what stands here.
#
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#
# Binding. One rank to a GPU; all stay visible (--gpu-bind=none), as a rank takes the one of
# its number on the node (SLURM_LOCALID).
#
#   GPUs   cards behind the same switches   NUMA domain   its CPUs
#   0, 1   mlx5_0, mlx5_1                   3             48-63, 176-191
#   2, 3   mlx5_2, mlx5_3                   1             16-31, 144-159
#   4, 5   mlx5_6, mlx5_7                   7             112-127, 240-255
#   6, 7   mlx5_8, mlx5_9                   5             80-95, 208-223
#
# Each rank gets eight cores of its GPU's domain to itself, with both hardware threads (c and
# c + 128), by a mask: where two ranks have the whole domain (--cpu-bind=map_ldom), each puts
# its threads on the first eight of OMP_PLACES, and half the cores stay idle. The masks are of
# a node that is all the job's (--exclusive) and all the step's: srun gives a step no more
# CPUs than it asks for, hence 32 to a rank, though half of them lie far from every GPU. Where
# hyperthreading is off: 16, and masks without the upper half.
#
# NCCL and UCX find the card nearest to a GPU by themselves. The four others (mlx5_4, mlx5_5,
# mlx5_10, mlx5_11) are for storage and not for messages: where `ibdev2netdev` shows them up,
# leave them out with NCCL_IB_HCA and UCX_NET_DEVICES.
#
# What a rank's device does at most, for the estimate of `trireme jobscript`, in FLOP/s:
#PEAK fp32=19.5e12 bf16=312e12 fp16=312e12
#
# Modules have other names everywhere: TRIREME_MODULES="cuda openmpi hdf5-parallel nccl" says
# which. `trireme jobscript` writes down those that are loaded when it is called.
# shellcheck disable=SC2086  # names with blanks between
[[ -z ${TRIREME_MODULES:-} ]] || module load $TRIREME_MODULES
export OMP_NUM_THREADS=8 OMP_PROC_BIND=true OMP_PLACES=cores
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-32}  # newer sruns do not take the job's
masks=
for core in 48 56 16 24 112 120 80 88; do  # the first of each rank; a digit is four CPUs
  masks+=$(printf ',0xff%030dff%0*d' 0 $((core / 4)) 0)
done
# srun's --mpi is what goes with the program's MPI library; to have another (srun --mpi=list):
# export SLURM_MPI_TYPE=pmix
# shellcheck disable=SC2034,SC2054  # used by who sources this
launcher=(srun --kill-on-bad-exit=1 --gpu-bind=none
          --cpu-bind="mask_cpu:${masks#,}")
