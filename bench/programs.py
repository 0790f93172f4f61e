"""How the comparing scripts run the programs they compare."""
import json
import subprocess
import sys


def run(command, environment=None):
    """The JSON object in the last line that `command` prints; ends the script with its errors when it fails."""
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr.strip()}")
    return json.loads(result.stdout.strip().splitlines()[-1])
