# slurm/machines/selene.sh — nodes with eight A100 and eight InfiniBand cards, as NVIDIA's
# Selene and other DGX A100 systems have them: two EPYC 7742 (64 cores in four NUMA domains
# each, two hardware threads a core), GPUs by NVSwitch.
#
# Written from public descriptions: the DGX A100 system architecture, the `nvidia-smi topo -m` of
# such nodes as published (in issues of NVIDIA/nccl, too), and NVIDIA's MLPerf training scripts
# for them, which bind each rank to four of the same eight cores. Not tried there: compare that
# command's output and the run's banner with what stands here.
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
#
# NCCL, which carries the messages between GPUs. Within a node by NVSwitch; between nodes by
# InfiniBand, where each GPU has a card behind its own switch and NCCL finds it:
#   NCCL_IB_HCA         the eight cards for messages. mlx5_4, mlx5_5, mlx5_10 and mlx5_11 are for
#                       storage: NCCL would count them in where they are up. Compare
#                       `ibdev2netdev`, and set your nodes' names; = is for exactly these.
#   NCCL_SOCKET_IFNAME  by which NCCL's processes find each other: anything but loop-back and
#                       containers' bridges
#   NCCL_CROSS_NIC      0: card i of a node speaks to card i of the next one, which are on one
#                       rail
#   NCCL_NET_GDR_LEVEL  PXB: a card reads a GPU's memory by itself where both are behind the same
#                       switches; needs the module nvidia_peermem of the kernel
#   NCCL_IB_TIMEOUT     22 is 17 s before a message is given up, where the default's 4 s is short
#                       of a route that changes in a large network
export NCCL_IB_HCA="${NCCL_IB_HCA:-=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_6,mlx5_7,mlx5_8,mlx5_9}"
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-^lo,docker0}"
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-0} NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PXB}
export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-22}
# NVLS (sums within the switch) is Hopper's, and off in runs with run.deterministic.
#
# MPI, which carries host values, and device messages where TRIREME_TRANSPORT=mpi. With Open MPI:
#   UCX_NET_DEVICES     the same cards for UCX, which otherwise may take those for storage
#   OMPI_MCA_coll       without hcoll and ucc, whose sums on the network come in any order: a run
#                       would not have the same bits twice
export UCX_NET_DEVICES="${UCX_NET_DEVICES:-mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_6:1,mlx5_7:1,\
mlx5_8:1,mlx5_9:1}"
export OMPI_MCA_coll=^hcoll,ucc
# CUDA: trireme itself sets CUDA_DEVICE_MAX_CONNECTIONS=32 (streams do not wait for each other)
# and CUDA_MODULE_LOADING=EAGER (no kernel is loaded while another rank waits in NCCL).
#
# srun's --mpi is what goes with the program's MPI library; to have another (srun --mpi=list):
# export SLURM_MPI_TYPE=pmix
# shellcheck disable=SC2034,SC2054  # used by who sources this
launcher=(srun --kill-on-bad-exit=1 --gpu-bind=none
          --cpu-bind="mask_cpu:${masks#,}")
