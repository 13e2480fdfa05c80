# slurm/machines/perlmutter.sh — nodes with four A100 and four Slingshot cards, as NERSC's
# Perlmutter has them: one EPYC 7763 (64 cores in four NUMA domains), GPUs by NVLink.
#
# Written from public descriptions: NERSC's documentation (node types; affinity), and the job
# script of WarpX for this machine (Tools/machines/perlmutter-nersc in its repository). Not
# tried there: compare `nvidia-smi topo -m` and the run's banner with what stands here.
#
#SBATCH --constraint=gpu
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --exclusive
# Give --account (it ends on _g) and --qos=regular yourself.
#
# Binding. One rank to a GPU. SLURM counts hyperthreads: 32 CPUs are 16 cores, a NUMA domain.
# GPU 0 hangs on the last domain and GPU 3 on the first, so rank r of a node takes GPU 3 - r:
# each rank is shown that one alone. SLURM's own --gpu-bind would put a rank in a cgroup in
# which NVLink's memory handles of the others cannot be opened, hence none. Each GPU has a
# Slingshot card beside it: MPICH_OFI_NIC_POLICY=GPU takes that for MPI; NCCL finds it by the
# topology, with the plugin for libfabric that the module brings (else it falls back to TCP).
#
# What a rank's device does at most, for the estimate of `trireme jobscript`, in FLOP/s:
#PEAK fp32=19.5e12 bf16=312e12 fp16=312e12
#
module load PrgEnv-gnu cudatoolkit craype-accel-nvidia80 cray-hdf5-parallel nccl
export OMP_NUM_THREADS=16 OMP_PROC_BIND=spread OMP_PLACES=cores
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-32}  # newer sruns do not take the job's
export MPICH_OFI_NIC_POLICY=GPU
# Cray's srun speaks to Cray MPICH by itself: trireme asks for no --mpi with that library.
# shellcheck disable=SC2016,SC2034  # expanded on the ranks; used by who sources this
launcher=(srun --kill-on-bad-exit=1 --cpu-bind=cores
          bash -c 'export CUDA_VISIBLE_DEVICES=$((3 - SLURM_LOCALID)); exec "$0" "$@"')
