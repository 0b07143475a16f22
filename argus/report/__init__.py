# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of one job, or of several that are compared: one HTML file, made from archives alone."""
