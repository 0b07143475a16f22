"""In place of get-pip.py for ansible-test: pip from ensurepip, and then what was asked for, as pip is configured."""

import subprocess
import sys

NOT_OF_PIP = ("--no-setuptools", "--no-wheel")
subprocess.check_call([sys.executable, "-m", "ensurepip", "--upgrade", "--default-pip"], stdout=subprocess.DEVNULL)
wanted = [argument for argument in sys.argv[1:] if argument not in NOT_OF_PIP]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *wanted]))
