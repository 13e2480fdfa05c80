# slurm/machines/perlmutter.sh — nodes with four A100 and four Slingshot cards, as NERSC's
# Perlmutter has them: one EPYC 7763 (64 cores in four NUMA domains), GPUs by NVLink.
#
# Written from public descriptions: NERSC's documentation (node types; affinity), the job script
# of WarpX for this machine (Tools/machines/perlmutter-nersc in its repository), and what sites
# with the same network say of NCCL (NCAR's Derecho, Bristol's Isambard-AI). Not tried there:
# compare `nvidia-smi topo -m` and the run's banner with what stands here.
#
#SBATCH --constraint=gpu
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --exclusive
# Give --account (it ends on _g) and --qos=regular yourself; --constraint='gpu&hbm80g' asks for
# the GPUs with 80 GB.
#
# Binding. One rank to a GPU. SLURM counts hyperthreads: 32 CPUs are 16 cores, a NUMA domain.
#
#   rank   its cores, with --cpu-bind=cores   NUMA domain   GPU   card
#   0      0-15, 64-79                        0             3     of that domain
#   1      16-31, 80-95                       1             2     of that domain
#   2      32-47, 96-111                      2             1     of that domain
#   3      48-63, 112-127                     3             0     of that domain
#
# Rank r of a node is shown GPU 3 - r alone (CUDA_VISIBLE_DEVICES, below), and takes what it is
# shown. SLURM's own --gpu-bind would put a rank in a cgroup in which NVLink's memory handles of
# the others cannot be opened, hence none.
#
# What a rank's device does at most, for the estimate of `trireme jobscript`, in FLOP/s:
#PEAK fp32=19.5e12 bf16=312e12 fp16=312e12
#
module load PrgEnv-gnu cudatoolkit craype-accel-nvidia80 cray-hdf5-parallel nccl
export OMP_NUM_THREADS=16 OMP_PROC_BIND=spread OMP_PLACES=cores
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-32}  # newer sruns do not take the job's
#
# NCCL, which carries the messages between GPUs. Within a node by NVLink, of which it needs to be
# told nothing. Between nodes by libfabric, with the plugin that the module nccl brings:
#   NCCL_NET            that plugin or an end: without it NCCL would take TCP, ten times slower,
#                       and say so only under NCCL_DEBUG=INFO. Newer plugins are called
#                       Libfabric: NCCL prints the name that it knows.
#   NCCL_SOCKET_IFNAME  by which NCCL's processes find each other: the fast network's
#                       interfaces, hsn0 to hsn3, and not the one for administration
#   NCCL_CROSS_NIC      1: rings may go by another card on the next node, as this network's
#                       cards are not in rails of their own
#   NCCL_NET_GDR_LEVEL  PHB: a card reads a GPU's memory by itself where both are in one NUMA
#                       domain, as each GPU and its card are
export NCCL_NET="${NCCL_NET:-AWS Libfabric}" NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-hsn}
export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1} NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}
#
# libfabric, below it:
#   FI_CXI_DISABLE_HOST_REGISTER, FI_MR_CACHE_MONITOR
#                       its cache of registered memory otherwise waits within CUDA for memory
#                       that CUDA waits for: a run hangs, mostly in its first steps
#   FI_CXI_DEFAULT_CQ_SIZE
#                       room for completions of many ranks at once; too little ends a large job
export FI_CXI_DISABLE_HOST_REGISTER=1 FI_MR_CACHE_MONITOR=userfaultfd
export FI_CXI_DEFAULT_CQ_SIZE=131072
#
# Cray MPICH, which carries host values, and device messages where TRIREME_TRANSPORT=mpi:
#   MPICH_GPU_SUPPORT_ENABLED
#                       0: with 1 a program that is not linked with Cray's library for GPUs does
#                       not start, and one linked by nvcc_wrapper is not, unless
#                       NVCC_WRAPPER_DEFAULT_COMPILER was CC. TRIREME_MPI_DEVICE=1 needs it.
#   MPICH_OFI_NIC_POLICY
#                       NUMA: the card of the rank's domain, which is its GPU's, too
export MPICH_GPU_SUPPORT_ENABLED=${MPICH_GPU_SUPPORT_ENABLED:-${TRIREME_MPI_DEVICE:-0}}
export MPICH_OFI_NIC_POLICY=NUMA
# CUDA: trireme itself sets CUDA_DEVICE_MAX_CONNECTIONS=32 (streams do not wait for each other)
# and CUDA_MODULE_LOADING=EAGER (no kernel is loaded while another rank waits in NCCL).
#
# Cray's srun speaks to Cray MPICH by itself: trireme asks for no --mpi with that library.
# shellcheck disable=SC2016,SC2034  # expanded on the ranks; used by who sources this
launcher=(srun --kill-on-bad-exit=1 --cpu-bind=cores
          bash -c 'export CUDA_VISIBLE_DEVICES=$((3 - SLURM_LOCALID)); exec "$0" "$@"')
