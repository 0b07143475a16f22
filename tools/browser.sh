#!/bin/bash
# Install Chromium for the tests of pages, promtool for those of alerts, and zsh for those of completion, as root on
# Debian. Elsewhere they are skipped.
set -euo pipefail

command -v chromium >/dev/null && command -v promtool >/dev/null && command -v zsh >/dev/null && exit 0
. /etc/os-release 2>/dev/null || true
# Ubuntu has Chromium as a snap, which needs systemd.
[ "${ID:-}" = debian ] && [ "$(id -u)" = 0 ] || exit 0
echo "installing chromium, prometheus and zsh"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium prometheus zsh >/dev/null ||
  echo "tools/browser.sh: chromium, prometheus or zsh is not installed: tests that need it are skipped" >&2
