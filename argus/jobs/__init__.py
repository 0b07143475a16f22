# SPDX-License-Identifier: Apache-2.0
"""Operations on a job, from the head: submit it, stop it, collect its evidence. The uppermost package.

Only modules call it. What an operation needs of the head it gets as `services.Services`, which tests replace.
"""
