#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: user_code
short_description: Copy your own Python to the shared root
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Copies Python files of the controller, such as reward functions, to C(user/code/) under the shared root, with mode
    0644. Each file that differs is replaced at once, also while jobs use it.
  - Runs C(argus stage) in the head's node, from its machine, as the user of the nodes. No module is sent, and the
    machine needs no Python.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  src:
    description:
      - A file of the controller, or a directory with at most 200 files. With a slash at its end, the contents of the
        directory are copied. C(.git), C(__pycache__) and compiled files are excluded.
    type: path
    required: true
seealso:
  - module: argus.verl.hf_model
  - module: argus.verl.rl_dataset
"""

EXAMPLES = r"""
- name: Copy a reward function
  argus.verl.user_code:
    src: /home/ann/rewards/reward.py
"""

RETURN = r"""
name:
  description: The name of the file or the directory.
  type: str
  returned: success
  sample: reward.py
path:
  description: Its path in this node.
  type: str
  returned: success
  sample: /private/user/code/reward.py
status:
  description: V(staged) if a file differed, otherwise V(exists). In check mode, what it would be.
  type: str
  returned: success
  sample: staged
finding:
  description: The problem (C(what)), its place (C(where)) and what to do about it (C(todo)).
  type: dict
  returned: failure
"""
