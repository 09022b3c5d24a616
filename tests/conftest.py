"""Gives SIGINT and SIGHUP their usual effect.

A shell ignores SIGINT in background jobs, and nohup ignores SIGHUP. The processes that tests start would inherit this.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
