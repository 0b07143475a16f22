# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of jobs: reads archives and asks Ray, and changes neither.

Lives here: the state of a job (state), its progress (progress), its log (logs), the list of jobs (listing), and the
text of all of them for people (report).
Called by: ray_job_info and ray_job, the filters of status.yml, and the action plugins that follow a job or its log.
"""
