# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on a job: submit it and stop it. They are the only code that changes a job.

Called by: ray_job, after the gate has admitted the job. Between operations, the launcher takes care of a job.
"""
