#!/usr/bin/env bash
# A SLURM of one node on this machine, for tests: munged, slurmctld and slurmd from Debian, without
# systemd, cgroups or an accounting database; partitions `cpu` and `gpu`, two GPUs that are none.
#   cluster.sh install | up | down
# Everything is below SLURM_TEST_ROOT but one link: /etc/slurm/slurm.conf, which the commands that
# Snakemake's plugin runs inside a job need, since it takes SLURM's variables away from them.
set -euo pipefail

root=${SLURM_TEST_ROOT:-/tmp/raptor-slurm}
link=/etc/slurm/slurm.conf
host=$(hostname -s)
as_root=$([ "$(id -u)" -eq 0 ] || echo sudo)
export PATH=$PATH:/usr/sbin SLURM_CONF=$root/slurm.conf

install() {
  # Debian's scripts would start the daemons where an init system is; 101 means: do not.
  local policy=/usr/sbin/policy-rc.d ours=
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod +x $policy
    ours=yes
  fi
  $as_root apt-get -qq -o Acquire::Retries=3 update
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
    install -y --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null
  [ -z "$ours" ] || $as_root rm $policy
}

configure() {
  # Fake GPUs have to be character devices, or slurmd hands out none.
  cat >"$root/gres.conf" <<END
NodeName=$host Name=gpu Type=fake File=/dev/null
NodeName=$host Name=gpu Type=fake File=/dev/zero
END
  cat >"$root/slurm.conf" <<END
ClusterName=raptor
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$root/munge.socket
CredType=cred/munge
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool
SlurmctldPidFile=$root/slurmctld.pid
SlurmdPidFile=$root/slurmd.pid
SlurmctldLogFile=$root/slurmctld.log
SlurmdLogFile=$root/slurmd.log
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# Memory is watched by adding up what the processes of a job use; too much ends the job.
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait=30
InactiveLimit=0
MessageTimeout=30
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=${SLURM_TEST_CPUS:-4} RealMemory=${SLURM_TEST_MB:-8000} Gres=gpu:fake:2
PartitionName=cpu Nodes=$host Default=YES DefaultTime=5 MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=$host DefaultTime=5 MaxTime=INFINITE State=UP
END
}

up() {
  if running slurmctld; then echo "a test cluster is up already"; return; fi
  if [ -e $link ] && [ "$(readlink $link || true)" != "$root/slurm.conf" ]; then
    echo "$link belongs to a SLURM of this machine; the tests need a machine without one" >&2
    exit 1
  fi
  umask 022
  rm -rf "$root"
  mkdir -p "$root/state" "$root/spool"
  (umask 077; head -c 64 /dev/urandom >"$root/munge.key")
  configure
  $as_root mkdir -p /etc/slurm
  $as_root ln -sfn "$root/slurm.conf" $link
  munged --socket="$root/munge.socket" --key-file="$root/munge.key" --seed-file="$root/munge.seed" \
    --pid-file="$root/munged.pid" --log-file="$root/munged.log"
  slurmctld -c
  slurmd
  for _ in $(seq 100); do
    if [ "$(sinfo --noheader --partition=gpu --format=%t 2>/dev/null)" = idle ]; then return; fi
    sleep 0.2
  done
  tail -n 20 "$root"/*.log >&2
  echo "the test cluster did not come up" >&2
  exit 1
}

running() {
  [ -e "$root/$1.pid" ] && [ "$(cat "/proc/$(cat "$root/$1.pid")/comm" 2>/dev/null)" = "$1" ]
}

down() {
  if running slurmctld; then timeout 20 scancel --user="$(id -un)" || true; fi
  for daemon in slurmd slurmctld munged; do
    if running $daemon; then
      local pid
      pid=$(cat "$root/$daemon.pid")
      kill "$pid"
      timeout 15 tail --pid="$pid" -f /dev/null || kill -9 "$pid"
    fi
  done
  if [ "$(readlink $link || true)" = "$root/slurm.conf" ]; then $as_root rm $link; fi
  rm -rf "$root"
}

case ${1:-} in
  install | up | down) "$1" ;;
  *) sed -n '2,6p' "$0"; exit 2 ;;
esac
