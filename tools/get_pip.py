"""Replace get-pip.py for ansible-test: install pip with ensurepip, then the requested packages as pip is configured."""

import subprocess
import sys

# Options of get-pip.py, which ansible-test passes and pip does not have.
GET_PIP_OPTIONS = ("--no-setuptools", "--no-wheel")
subprocess.check_call([sys.executable, "-m", "ensurepip", "--upgrade", "--default-pip"], stdout=subprocess.DEVNULL)
requirements = [argument for argument in sys.argv[1:] if argument not in GET_PIP_OPTIONS]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *requirements]))
