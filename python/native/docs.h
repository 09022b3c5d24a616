/* The docstrings of what Python users call and C implements. */
#ifndef PYFEED_DOCS_H
#define PYFEED_DOCS_H

#define MEMORY_STATS_DOC                                                                               \
    "memory_stats()\n--\n\n"                                                                           \
    "What is alive in this process; all but ``idle_bytes`` fall to 0 when all is closed.\n\n"          \
    "Returns\n"                                                                                        \
    "-------\n"                                                                                        \
    "dict\n"                                                                                           \
    "    ``handles``, of queues, readers and scopes; ``tuples_on_loan``, whose arrays are still\n"     \
    "    in use; ``live_queue_bytes`` of tuples pushed by copy or in place, ``live_lent_bytes`` of\n"  \
    "    those that are lent, ``live_batch_bytes`` of batches and variables, ``live_view_bytes`` of\n" \
    "    descriptors, ``live_file_bytes`` read or decompressed from files; ``live_mapped_bytes`` of\n" \
    "    files that are mapped; ``live_buffers``, their number; ``pinned_bytes`` of host memory\n"     \
    "    that devices copy from, ``device_bytes`` of theirs, ``shared_bytes`` of memory that worker\n" \
    "    processes write to, each as a whole; ``idle_bytes``, kept for the next tuple.\n"

#define PUSH_DOC                                                                                 \
    "push($self, arrays, /, *, copy=True, timeout=None, pass_id=None)\n--\n\n"                   \
    "Put a tuple of arrays in; wait while the queue is full.\n\n"                                \
    "Parameters\n"                                                                               \
    "----------\n"                                                                               \
    "arrays : tuple or list\n"                                                                   \
    "    One array a slot: NumPy's, or anything with the buffer protocol,\n"                     \
    "    ``__array_interface__`` or DLPack in CPU memory, or a `LoDTensor`. Slots whose first\n" \
    "    dimension is -1 must have equally many rows.\n"                                         \
    "copy : bool\n"                                                                              \
    "    False lends the arrays, which must be contiguous, instead of copying them. They must\n" \
    "    not change until the consumer is done; NumPy's cannot be written to meanwhile.\n"       \
    "timeout : float, optional\n"                                                                \
    "    Seconds to wait for room. None: for ever; 0: not at all.\n"                             \
    "pass_id : int, optional\n"                                                                  \
    "    The pass the tuple belongs to, see `wait_pass`. None: the one that is current now.\n\n" \
    "Raises\n"                                                                                   \
    "------\n"                                                                                   \
    "ShapeError, DTypeError, ByteOrderError, SlotCountError, TooLargeError\n"                    \
    "    The tuple does not fit: what was expected, what was found, in which slot. Nothing is\n" \
    "    queued.\n"                                                                              \
    "QueueClosed\n"                                                                              \
    "    The queue takes no more, or was closed while this call waited.\n"                       \
    "Timeout\n"                                                                                  \
    "    There was no room in time.\n"

#define POP_DOC                                                                                   \
    "pop($self, timeout=None)\n--\n\n"                                                            \
    "Take the oldest tuple out; wait for one while the queue is empty.\n\n"                       \
    "Returns\n"                                                                                   \
    "-------\n"                                                                                   \
    "tuple of numpy.ndarray\n"                                                                    \
    "    Views of the queue's memory, one a slot; it goes back when the last view dies. A slot\n" \
    "    with levels of detail is a `LoDTensor`. What was lent is read-only. Of a queue whose\n"  \
    "    place is a `CUDAPlace`: `DeviceArray` there.\n\n"                                        \
    "Raises\n"                                                                                    \
    "------\n"                                                                                    \
    "EndOfData\n"                                                                                 \
    "    The queue was closed, and is empty.\n"                                                   \
    "Timeout\n"                                                                                   \
    "    No tuple came in time.\n"                                                                \
    "Exception\n"                                                                                 \
    "    The producer's own, if the queue failed, after the last tuple that was pushed.\n"

#define SLOT_DOC                                                                                 \
    "slot($self, rows=None, *, shapes=None, lod=None, timeout=None, pass_id=None)\n--\n\n"       \
    "Reserve a tuple in the queue's own memory, to be written in place.\n\n"                     \
    "A context manager, used once. Entering waits for room and gives a tuple of writable\n"      \
    "arrays with arbitrary contents; leaving queues them; leaving by an exception drops them.\n" \
    "Afterwards the arrays are read-only: the memory is the consumer's, and another slot's\n"    \
    "when nobody has them any more, so that a loop over large ones does well to ``del`` its\n"   \
    "names behind the block.\n\n"                                                                \
    "Parameters\n"                                                                               \
    "----------\n"                                                                               \
    "rows : int, optional\n"                                                                     \
    "    What stands for a first dimension of -1.\n"                                             \
    "shapes : sequence of shapes, optional\n"                                                    \
    "    The shape of every slot, for those that have -1 in other places.\n"                     \
    "lod : sequence, optional\n"                                                                 \
    "    The LoD of every slot: levels of offsets, none where it has none.\n"                    \
    "timeout, pass_id\n"                                                                         \
    "    As for `push`.\n\n"                                                                     \
    "Examples\n"                                                                                 \
    "--------\n"                                                                                 \
    ">>> from pyfeed import Scope, py_array_reader\n"                                            \
    ">>> reader, queue = py_array_reader(4, [(-1, 2)], dtypes=['float32'], scope=Scope())\n"     \
    ">>> with queue.slot(3) as (x,):\n"                                                          \
    "...     x[:] = 7\n"                                                                         \
    ">>> float(queue.pop()[0].sum())\n"                                                          \
    "42.0\n"

#define CLOSE_DOC                                                                      \
    "close($self, pass_id=None)\n--\n\n"                                               \
    "End the pass: pushes raise `QueueClosed`, what is queued is still delivered.\n\n" \
    "Parameters\n"                                                                     \
    "----------\n"                                                                     \
    "pass_id : int, optional\n"                                                        \
    "    Another pass than the current one is left alone. None: the current one.\n"

#define REOPEN_DOC                                                                             \
    "reopen($self)\n--\n\n"                                                                    \
    "Begin the next pass: drop what is still queued, and take tuples again.\n\n"               \
    "A push that began before raises `QueueClosed`, a pop `EndOfData`: neither sees the new\n" \
    "pass.\n\n"                                                                                \
    "Returns\n"                                                                                \
    "-------\n"                                                                                \
    "int\n"                                                                                    \
    "    How many tuples were dropped.\n"

#define WAIT_PASS_DOC                                                                               \
    "wait_pass($self, after, timeout=None)\n--\n\n"                                                 \
    "Wait until a pass with a number above `after` is open; for producers that can start over.\n\n" \
    "Parameters\n"                                                                                  \
    "----------\n"                                                                                  \
    "after : int or None\n"                                                                         \
    "    The pass that the producer is done with. None: it was in none.\n"                          \
    "timeout : float, optional\n"                                                                   \
    "    Seconds to wait.\n\n"                                                                      \
    "Returns\n"                                                                                     \
    "-------\n"                                                                                     \
    "int\n"                                                                                         \
    "    The pass's number, to push with: once the consumer resets the reader, such pushes\n"       \
    "    raise `QueueClosed`.\n"

#define SHUTDOWN_DOC          \
    "shutdown($self)\n--\n\n" \
    "Close for good and drop what is queued. Every call that waits wakes up.\n"

#define STATS_DOC                                                                                    \
    "stats($self)\n--\n\n"                                                                           \
    "The state of the queue at one moment.\n\n"                                                      \
    "Returns\n"                                                                                      \
    "-------\n"                                                                                      \
    "dict\n"                                                                                         \
    "    ``size``, ``capacity`` and ``reserved`` (being written) in tuples; ``bytes`` and\n"         \
    "    ``bytes_limit``; ``pass_id``, from 0, None before the first pass of a restartable queue;\n" \
    "    ``closed``, ``failed``, ``shut_down``, ``restartable``;\n"                                  \
    "    ``waiting_producers`` and ``waiting_consumers``, threads; since the queue was made:\n"      \
    "    ``pushed``, ``popped``, ``dropped``, ``pushed_bytes``; ``producers_waited`` and\n"          \
    "    ``consumers_waited``, seconds, summed over threads.\n"

#define PUT_DOC                                                                                  \
    "put($self, arrays, /, *, timeout=None)\n--\n\n"                                             \
    "Copy a tuple of arrays to the place, behind the others; wait while the buffer is full.\n\n" \
    "Parameters\n"                                                                               \
    "----------\n"                                                                               \
    "arrays : tuple or list\n"                                                                   \
    "    As for `PyArrayFeedQueue.push`. Tuples need not look alike.\n"                          \
    "timeout : float, optional\n"                                                                \
    "    Seconds to wait for room. None: for ever; 0: not at all.\n\n"                           \
    "Raises\n"                                                                                   \
    "------\n"                                                                                   \
    "ShapeError, DTypeError, ByteOrderError, SlotCountError\n"                                   \
    "    The tuple is none: what was expected, what was found, in which slot.\n"                 \
    "TooLargeError\n"                                                                            \
    "    It alone is more than ``bytes_limit``.\n"                                               \
    "Timeout\n"                                                                                  \
    "    There was no room in time.\n"

#define GET_DOC                                                                                \
    "get($self, timeout=None)\n--\n\n"                                                         \
    "Take the oldest tuple out; wait for one while the buffer is empty.\n\n"                   \
    "Returns\n"                                                                                \
    "-------\n"                                                                                \
    "tuple of numpy.ndarray\n"                                                                 \
    "    Views of the buffer's memory, one a slot; it goes back when the last view\n"          \
    "    dies. A slot with levels of detail is a `LoDTensor`. At a device: `DeviceArray`.\n\n" \
    "Raises\n"                                                                                 \
    "------\n"                                                                                 \
    "Timeout\n"                                                                                \
    "    No tuple came in time.\n"

#define CLEAR_DOC                                                                           \
    "clear($self)\n--\n\n"                                                                  \
    "Drop what is in the buffer, and give its memory back to the system.\n\n"               \
    "The buffer goes on: a `put` that waits for room gets it, a `get` that waits goes on\n" \
    "waiting.\n\n"                                                                          \
    "Returns\n"                                                                             \
    "-------\n"                                                                             \
    "int\n"                                                                                 \
    "    How many tuples were dropped.\n"

#define BUFFER_STATS_DOC                                                                         \
    "stats($self)\n--\n\n"                                                                       \
    "The state of the buffer at one moment.\n\n"                                                 \
    "Returns\n"                                                                                  \
    "-------\n"                                                                                  \
    "dict\n"                                                                                     \
    "    ``size``, ``capacity`` and ``reserved`` (being written) in tuples; ``bytes`` and\n"     \
    "    ``bytes_limit``; ``waiting_producers`` and ``waiting_consumers``, threads; since the\n" \
    "    buffer was made: ``put``, ``got``, ``dropped``, ``put_bytes``; ``producers_waited``\n"  \
    "    and ``consumers_waited``, seconds, summed over threads.\n"

#define DEVICE_ARRAY_DOC                                                                             \
    "A slot of a tuple at a `CUDAPlace`: what queues and readers of such a place deliver.\n\n"       \
    "The copy to the device may still be under way, and nobody waits for it on the host. Other\n"    \
    "libraries take the array without a copy, and have their stream wait, by DLPack:\n"              \
    "``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)``, ``jax.dlpack.from_dlpack(x)``. `use` does\n" \
    "the same for a stream of your own.\n\n"                                                         \
    "The memory is used again when all arrays of the tuple, and what was taken of them, are gone\n"  \
    "or released, and what was submitted until then to the streams that use it is done. As with\n"   \
    "any GPU array, a stream must not be destroyed while arrays that it uses are alive.\n\n"         \
    "``__cuda_array_interface__`` is there too. It waits on the host for the copy, and cannot\n"     \
    "say which stream will use the array: call ``use(stream)`` or ``release(stream)``.\n\n"          \
    "``len()`` is the first dimension. What it is can be asked after `release` as well.\n"

#define USE_DOC                                                                               \
    "use($self, stream, /)\n--\n\n"                                                           \
    "Have a stream wait until the array is there; the host does not.\n\n"                     \
    "The array is not written to again before what is submitted to the stream until the\n"    \
    "tuple is released is done.\n\n"                                                          \
    "Parameters\n"                                                                            \
    "----------\n"                                                                            \
    "stream : int or object with ``__cuda_stream__``\n"                                       \
    "    A ``CUstream`` of the array's device; 0 and 1: the legacy default stream; 2: the\n"  \
    "    calling thread's own.\n\n"                                                           \
    "Raises\n"                                                                                \
    "------\n"                                                                                \
    "StateError\n"                                                                            \
    "    The array was released, or the stream is being captured into a graph, and is left\n" \
    "    as it was: use the array before the capture.\n"

#define RELEASE_DOC                                                                            \
    "release($self, stream=None)\n--\n\n"                                                      \
    "Give the array up; when all of the tuple's have gone its memory is used again.\n\n"       \
    "Twice is fine. What others have taken of it by DLPack keeps the memory.\n\n"              \
    "Parameters\n"                                                                             \
    "----------\n"                                                                             \
    "stream : int or object with ``__cuda_stream__``, optional\n"                              \
    "    One that works with the array, as for `use`: what was submitted to it until now is\n" \
    "    waited for. None: the streams of `use` and DLPack are.\n"

#define SYNCHRONIZE_DOC                                      \
    "synchronize($self, timeout=None)\n--\n\n"               \
    "Wait on the host until the array is at the device.\n\n" \
    "Raises\n"                                               \
    "------\n"                                               \
    "Timeout\n"                                              \
    "    It was not in so many seconds.\n"

#define NUMPY_DOC          \
    "numpy($self)\n--\n\n" \
    "A copy on the host: a new `numpy.ndarray`.\n"

#define READ_DOC                                                           \
    "read($self, timeout=None)\n--\n\n"                                    \
    "The next tuple.\n\n"                                                  \
    "Returns\n"                                                            \
    "-------\n"                                                            \
    "tuple of numpy.ndarray\n"                                             \
    "    As `PyArrayFeedQueue.pop`.\n\n"                                   \
    "Raises\n"                                                             \
    "------\n"                                                             \
    "EndOfData\n"                                                          \
    "    The pass is over. Iteration ends instead.\n"                      \
    "Timeout\n"                                                            \
    "    No tuple came in time. Nothing is lost: the next call goes on.\n" \
    "Cancelled\n"                                                          \
    "    The reader was reset while this call waited.\n"                   \
    "Exception\n"                                                          \
    "    The producer's own, after the last tuple that was pushed.\n"

#define HAS_NEXT_DOC                                                             \
    "has_next($self, timeout=None)\n--\n\n"                                      \
    "Whether this pass has another tuple. Reads one ahead, and so may wait.\n\n" \
    "True stays true for the next read of this reader, whichever thread makes it.\n"

#define RESET_DOC                                                                          \
    "reset($self)\n--\n\n"                                                                 \
    "Start over, at any time; a read that waits in another thread raises `Cancelled`.\n\n" \
    "Raises\n"                                                                             \
    "------\n"                                                                             \
    "StateError\n"                                                                         \
    "    There is nothing to start over from: the message says what to do instead.\n"

#define ERASE_DOC "erase($self, name, /)\n--\n\nTake a variable out of this scope and drop what it holds.\n"
#define KIND_DOC \
    "kind($self, name, /)\n--\n\nWhat a variable holds: 'empty', 'tensor', 'queue' or 'reader'.\n"
#define GET_TENSOR_DOC                                                                           \
    "get_tensor($self, name, /)\n--\n\n"                                                         \
    "A read-only view of the tensor in a variable: an array, or a `DeviceArray` if it is at a\n" \
    "device. It stays valid, and as it is, whatever is written into the variable later.\n"
#define SET_TENSOR_DOC \
    "set_tensor($self, name, array, /)\n--\n\nCopy an array into a variable, made if need be.\n"
#define SCOPE_READ_DOC                                                                        \
    "read($self, reader, outs, timeout=None)\n--\n\n"                                         \
    "The read op: the next tuple of the reader in variable `reader`, slot by slot into the\n" \
    "variables `outs`. Moves, never copies.\n\n"                                              \
    "Raises\n"                                                                                \
    "------\n"                                                                                \
    "EndOfData\n"                                                                             \
    "    The pass is over; the variables stay as they are.\n"                                 \
    "SlotCountError\n"                                                                        \
    "    The numbers of slots and outputs differ; the tuple stays with the reader.\n"

#define CANCEL_TOKEN_DOC                                                                              \
    "CancelToken()\n--\n\n"                                                                           \
    "Ends runs of programs from another thread: give it to `Executor.run`.\n\n"                       \
    "One token serves any number of runs. Cancelled, it stays so: every run that has it, and every\n" \
    "later one, raises `Cancelled`.\n"

#define CANCEL_DOC "cancel($self)\n--\n\nEnd the runs that have this token. From any thread; twice is fine.\n"

#endif
