#!/bin/bash
# Install Chromium for the tests of pages of jobs and of Ray's dashboard, as root on Debian. Elsewhere they are skipped.
set -euo pipefail

command -v chromium >/dev/null && exit 0
. /etc/os-release 2>/dev/null || true
# Ubuntu has it as a snap, which needs systemd.
[ "${ID:-}" = debian ] && [ "$(id -u)" = 0 ] || exit 0
echo "installing chromium"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium >/dev/null ||
  echo "tools/browser.sh: chromium is not installed: the tests in a browser are skipped" >&2
