"""Shows that qemu-user invents the start time in a process's own /proc/PID/stat; the time of its main thread is right.

This is why pyfeed reads /proc/PID/task/PID/stat. Ends with status 0 if qemu has this fault.
"""

import os
import sys
import time


def start_time(path: str) -> int:
    with open(path) as file:
        return int(file.read().rpartition(")")[2].split()[19])


time.sleep(0.1)
readable, writable = os.pipe()
pid = os.fork()
if pid == 0:
    own = (start_time(f"/proc/{os.getpid()}/stat"), start_time(f"/proc/{os.getpid()}/task/{os.getpid()}/stat"))
    os.write(writable, f"{own[0]} {own[1]}".encode())
    time.sleep(60)  # until the parent kills it
process, thread = map(int, os.read(readable, 100).split())
seen, seen_thread = start_time(f"/proc/{pid}/stat"), start_time(f"/proc/{pid}/task/{pid}/stat")
os.kill(pid, 9)
os.waitpid(pid, 0)
if not thread == seen == seen_thread:
    sys.exit(f"the main thread's start time: expected {seen}, as its parent sees it, found {thread} and {seen_thread}")
if process == seen:
    sys.exit(f"no fault: a process and its parent both see the start time {seen}")
print(f"fault: a process sees the start time {process}, and its parent {seen}; both see {thread} for its main thread")
