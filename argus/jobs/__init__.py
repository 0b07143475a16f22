# SPDX-License-Identifier: Apache-2.0
"""Operations on a job, from the head: submit it, stop it, collect its evidence. The uppermost package.

Only modules call it. Operations reach the head through `services.Services`, which tests replace.
"""
