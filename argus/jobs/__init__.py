# SPDX-License-Identifier: Apache-2.0
"""Operations on jobs. Verbs call them in a node, and the controller prints reports with them.

request, submit, creation, job_files: check a JobSpec, and create its job. stop, removal: end jobs.
describe, progress, info: one job. listing, registry, superfluous: the jobs of a shared root and of a cluster.
report, job_list_report, logs: texts for people. bundle: archives on their way to the controller.
drain, evidence: take a node out of Ray, and collect what the nodes of a job report.
services: the head and its registry, through which operations change something; tests replace it.
"""
