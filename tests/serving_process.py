"""`tensorwire serve` as a process of its own, on ports of the system's choice."""

import json
import subprocess
import sys


class Served:
    def __init__(self, *folders, more=()):
        self.words = [sys.executable, "-m", "tensorwire", "serve", *map(str, folders), "--rest", "0", "--grpc", "0", "--json", *more]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        self.about = json.loads(line)
        self.rest, self.grpc = self.about["rest"], self.about["grpc"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.communicate(timeout=30)
        finally:
            self.process.kill()
