#!/bin/bash
# The same launcher on each of some nodes that ssh reaches and that share a file system. A launcher that dies can be started again alone.
#   HOSTS=node0,node1,node2 scripts/cluster/ssh.sh CONFIG
set -euo pipefail
hosts=${HOSTS:?such as node0,node1}
config=$(realpath "$1")
first=${hosts%%,*}
list=(${hosts//,/ })
secret_file=$HOME/.lockstep-secret-$$  # on the shared file system, readable by its owner only
(umask 077; openssl rand -hex 32 >"$secret_file")
trap 'rm -f "$secret_file"' EXIT

for host in "${list[@]}"; do
    ssh -tt "$host" "cd $PWD && LOCKSTEP_JOB_SECRET_FILE=$secret_file lockstep run --nnodes ${#list[@]} --nproc-per-node auto \
        --rdzv-endpoint $first:29400 --max-restarts 3 -- train $config" </dev/null &
done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
exit $status
