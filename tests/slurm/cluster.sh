#!/usr/bin/env bash
# tests/slurm/cluster.sh — a SLURM of one node for tests: its own daemons, key, ports and
# directories, beside whatever else runs here. Needs neither root nor systemd.
#
#   cluster.sh start DIR    prints the variables that its commands need: NAME=VALUE lines
#   cluster.sh stop DIR
#
# It also ends, with its jobs, when the process that called `start` does.
set -euo pipefail

say_missing() {
  echo "SLURM is not here ($1 is missing): tools/bootstrap --tests installs it" >&2
  exit 3
}

# Two ports that nobody listens at.
free_ports() {
  python3 - <<'PYTHON'
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
}

write_configuration() {
  local controller node host user
  read -r controller node < <(free_ports)
  host=$(hostname -s)
  user=$(id -un)
  # No cgroups, no accounting. cred_expire shortens the pause before a job that was requeued
  # starts again from two minutes to half a one. More CPUs than there may be cores: jobs of a
  # test run side by side.
  cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$node
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=10
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
SlurmdParameters=config_overrides
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=60 State=UP
CONF
  # Not to be looked for: containers often have none, and slurmd would not start.
  echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
}

# Waits until the command succeeds.
wait_for() {
  for ((i = 0; i < 300; ++i)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  echo "cluster.sh: gave up waiting for: $*" >&2
  tail -n 20 "$dir"/*.log "$dir"/munge/log >&2 || true
  return 1
}
has_idle_node() { [[ $(sinfo -h -o %T) == idle ]]; }

start() {
  PATH=$PATH:/usr/sbin:/sbin
  for program in munged slurmctld slurmd sbatch srun; do
    command -v "$program" >/dev/null || say_missing "$program"
  done
  mkdir -p "$dir"/{munge,state,spool}
  chmod 755 "$dir" "$dir/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$dir/munge/key")
  export SLURM_CONF=$dir/slurm.conf
  write_configuration
  munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  slurmctld -c
  slurmd
  wait_for has_idle_node
  watch </dev/null >/dev/null 2>&1 &
  echo "SLURM_CONF=$SLURM_CONF"
}
watch() {
  while [[ -e $dir/slurm.conf ]] && kill -0 "$PPID"; do sleep 1; done
  stop
}

# Jobs first: they would outlive the daemons, which are known by their pid files.
stop() {
  local job file process
  export SLURM_CONF=$dir/slurm.conf
  [[ -e $SLURM_CONF ]] || return 0
  for job in $(squeue -h -o %A || true); do
    scancel --full --signal=KILL "$job" || true
  done
  for file in "$dir"/slurmd.pid "$dir"/slurmctld.pid "$dir"/munge/pid; do
    process=$(cat "$file" 2>/dev/null) || continue
    kill "$process" 2>/dev/null || continue
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$process" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$process" 2>/dev/null || true
  done
  rm -f "$SLURM_CONF"
}

dir=${2:?usage: cluster.sh start|stop DIR}
case $1 in
  start) start ;;
  stop) stop ;;
  *) echo "usage: cluster.sh start|stop DIR" >&2; exit 2 ;;
esac
