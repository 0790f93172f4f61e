#!/bin/bash
# Two nodes with two ranks each under Open MPI. Over several nodes the ranks need an address of rank 0's node where they can meet.
#   scripts/cluster/mpi_hostfile.sh CONFIG
set -euo pipefail
hosts=${HOSTS:-node0,node1}
printf '%s slots=2\n' ${hosts//,/ } >hostfile

# --bind-to none: else Open MPI gives a rank of threads one core.
mpirun --hostfile hostfile --bind-to none -x MASTER_ADDR="${hosts%%,*}" -x LOCKSTEP_JOB_SECRET="$(openssl rand -hex 32)" \
    lockstep train "$1"
# MPICH: mpirun -f hostfile -bind-to none -genv MASTER_ADDR "${hosts%%,*}" ... with lines such as node0:2
