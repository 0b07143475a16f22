# SPDX-License-Identifier: Apache-2.0
"""Models, datasets and snapshots of verl under the shared root: staged once, verified, repaired, listed and removed.

items, options: what users ask for. models, snapshots, checkpoint, the package dataset: stage one kind of item.
store, lock, manifest: put an item into its place completely or not at all, by one process at a time, with its hashes.
hub, git, source_tree, upload, tiny: where contents come from.
listing, usage: the staged items, and the jobs that use them.
"""
