"""Shows that qemu-user has a thread of its own, which a process sees among its threads in /proc/self/task.

Ends with status 0 if qemu has this fault.
"""

import os
import sys

pid = os.fork()
if pid == 0:  # only the thread that called fork is in the child
    os._exit(len(os.listdir("/proc/self/task")))
threads = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if threads == 1:
    sys.exit("no fault: a forked child has one thread")
print(f"fault: a forked child has {threads} threads")
