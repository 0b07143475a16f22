#!/bin/sh
# Start what a machine runs: sshd with the keys in /rig, and with a data root as argument an engine.
set -eu
install -d -m 0755 /run/sshd
install -m 0600 /rig/host_key /etc/ssh/host_key
install -d -o ml -g ml -m 0700 /home/ml/.ssh
install -o ml -g ml -m 0600 /rig/key.pub /home/ml/.ssh/authorized_keys
if [ $# -gt 0 ]; then
  # The engine makes a group for each container.
  for group in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do mount -o remount,bind,rw "$group"; done
  # A machine that was stopped has left them.
  rm -f /run/docker.pid /run/docker/containerd/containerd.pid
  dockerd --data-root "$1" >/var/log/dockerd.log 2>&1 &
fi
# VERBOSE: one line for each session in a connection.
exec /usr/sbin/sshd -D -e -p 2222 -h /etc/ssh/host_key -o LogLevel=VERBOSE -o PasswordAuthentication=no
