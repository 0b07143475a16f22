# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster: `membership` compares those that are expected with those that Ray reports, `readiness` waits
until they agree. The controller uses both, so they need the standard library only.
"""
