# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command `argus`: their requests, what they do, and what they print for people."""
