# slurm/machines/selene.sh — nodes with eight A100 and eight InfiniBand cards, as NVIDIA's
# Selene and other DGX A100 systems have them: two EPYC 7742 (64 cores in four NUMA domains
# each), GPUs by NVSwitch.
#
# Written from public descriptions: the DGX A100 system architecture and the `nvidia-smi topo
# -m` of such nodes; JUWELS Booster's (four of the same GPUs) has the same domains. Not tried
# there: compare that command's output and the run's banner with what stands here.
#
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#
# Binding. One rank to a GPU. GPUs hang on NUMA domains 3, 3, 1, 1, 7, 7, 5, 5, in pairs with
# two InfiniBand cards behind the same PCIe switches: map_ldom puts rank r of a node on the
# domain of GPU r, where it shares 16 cores with its neighbour. All GPUs stay visible
# (--gpu-bind=none), as a rank takes the one of its number on the node (SLURM_LOCALID), and
# NCCL and UCX find the card nearest to it by themselves. Cards for storage are not for
# messages: where `ibdev2netdev` shows such, leave them out with NCCL_IB_HCA and
# UCX_NET_DEVICES.
#
# module load cuda openmpi hdf5-parallel nccl
export OMP_NUM_THREADS=8 OMP_PROC_BIND=true OMP_PLACES=cores
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-16}  # newer sruns do not take the job's
# --mpi: pmix for Open MPI; pmi2 for MPICH (srun --mpi=list).
# shellcheck disable=SC2034,SC2054  # used by who sources this
launcher=(srun --mpi=pmix --kill-on-bad-exit=1 --gpu-bind=none
          --cpu-bind=map_ldom:3,3,1,1,7,7,5,5)
