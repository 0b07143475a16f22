#!/bin/sh
# The first process: an NFS server, the same export mounted twice, and commands from the serial line.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
for directory in /run /tmp /srv /var/lib/nfs; do mount -t tmpfs tmpfs "$directory"; done
mkdir -p /srv/export /run/rpcbind /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcltrack
: >/var/lib/nfs/etab
: >/var/lib/nfs/rmtab
{
  ip link set lo up
  modprobe nfsv4
  modprobe nfsd
  mount -t nfsd nfsd /proc/fs/nfsd
  mount -t rpc_pipefs rpc /var/lib/nfs/rpc_pipefs
  # As a storage server has it: root of a machine is nobody there.
  chown 1000:1000 /srv/export
  echo '/srv/export 127.0.0.1(rw,root_squash,insecure,fsid=0)' >/etc/exports
  rpcbind
  exportfs -ra
  # Without it, a new server makes clients wait for those of an earlier one.
  echo 1 >/proc/fs/nfsd/nfsv4gracetime
  echo 1 >/proc/fs/nfsd/nfsv4leasetime
  rpc.mountd -N 3
  rpc.nfsd -N 3 4
  # Two mounts that share nothing, as those of two machines: with another version, the second is another client for the
  # server. Of one client, it would not ask for a delegation back, and a file that is replaced would stay the old one.
  mount -t nfs4 -o vers=4.2 127.0.0.1:/ /private
  mount -t nfs4 -o vers=4.1,nosharecache 127.0.0.1:/ /again
} >/run/boot.log 2>&1
exec python3 /usr/local/sbin/serve.py /dev/ttyS0
