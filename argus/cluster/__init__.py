# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a cluster: `membership` compares those that are expected with those that Ray reports, `readiness` waits
until they agree. The controller uses both, so they need the standard library only.
"""
