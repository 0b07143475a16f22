# SPDX-License-Identifier: Apache-2.0
"""The page of one job, or of several that are compared: one HTML file, made from archives alone."""
