# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of a snapshot of verl: releases, repositories and directories.

They use the standard library and nothing else of the program: the module source_tree brings these files to a machine,
where pip, git and the directories are. The program reads sources on the shared root with them.
"""
