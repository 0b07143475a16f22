# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on a job, from the head: submit it, stop it, collect its evidence. The uppermost package.

Only modules call it. What an operation needs of the head it gets as `services.Services`, which tests replace.
"""
