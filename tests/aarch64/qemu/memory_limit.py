"""Shows that qemu-user ignores limits of memory: setrlimit reports success, but has no effect.

Ends with status 0 if qemu has this fault.
"""

import mmap
import resource
import sys

LIMIT = 64 << 20

for name in ("RLIMIT_AS", "RLIMIT_DATA"):
    number = getattr(resource, name)
    resource.setrlimit(number, (LIMIT, LIMIT))
    try:
        mmap.mmap(-1, 4 * LIMIT).close()
    except OSError as error:
        sys.exit(f"no fault: with {name} = {LIMIT}, a mapping of {4 * LIMIT} bytes fails: {error}")
print(f"fault: with limits of {LIMIT} bytes, a mapping of {4 * LIMIT} bytes succeeds")
