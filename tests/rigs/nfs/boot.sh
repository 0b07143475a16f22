#!/bin/sh
# Boot; standard input and output of the container are the serial line of the kernel.
export TMPDIR=/tmp
exec linux.uml quiet mem=512M rootfstype=hostfs rootflags=/ rw init=/usr/local/sbin/guest.sh con=null ssl0=fd:0,fd:1 \
  2>/dev/null
