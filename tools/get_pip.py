"""Replace get-pip.py for ansible-test: install pip with ensurepip, then the requested packages as pip is configured."""

import subprocess
import sys

NOT_OF_PIP = ("--no-setuptools", "--no-wheel")
subprocess.check_call([sys.executable, "-m", "ensurepip", "--upgrade", "--default-pip"], stdout=subprocess.DEVNULL)
requirements = [argument for argument in sys.argv[1:] if argument not in NOT_OF_PIP]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *requirements]))
