# SPDX-License-Identifier: Apache-2.0
"""The steward of a cluster: one process beside Ray's head that looks after all of its jobs.

cluster: the process, with a thread for each job. job: such a thread.
observer, attempt_checks, placement: what the thread observes. decisions: what it does next. notify: tells people.
web: metrics and pages over HTTP.
"""
