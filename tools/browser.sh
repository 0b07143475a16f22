#!/bin/bash
# Install Chromium for the tests of pages, and promtool for those of alerts, as root on Debian. Elsewhere they are skipped.
set -euo pipefail

command -v chromium >/dev/null && command -v promtool >/dev/null && exit 0
. /etc/os-release 2>/dev/null || true
# Ubuntu has Chromium as a snap, which needs systemd.
[ "${ID:-}" = debian ] && [ "$(id -u)" = 0 ] || exit 0
echo "installing chromium and prometheus"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium prometheus >/dev/null ||
  echo "tools/browser.sh: chromium or prometheus is not installed: tests that need it are skipped" >&2
