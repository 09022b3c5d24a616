/* The docstrings of functions and types of the extension that Python users see. */
#ifndef PYFEED_DOCS_H
#define PYFEED_DOCS_H

#define MEMORY_STATS_DOC                                                                                   \
    "memory_stats()\n--\n\n"                                                                               \
    "Report the memory and the objects of the library in this process.\n\n"                                \
    "All counts except ``idle_bytes`` are 0 again once everything is closed.\n\n"                          \
    "Returns\n"                                                                                            \
    "-------\n"                                                                                            \
    "dict\n"                                                                                               \
    "    ``handles``: queues, readers, scopes and other objects that Python or C holds.\n"                 \
    "    ``tuples_on_loan``: tuples whose arrays are still in use.\n"                                      \
    "    ``live_queue_bytes``: tuples that were pushed by copy or in place.\n"                             \
    "    ``live_lent_bytes``: arrays that were pushed without a copy.\n"                                   \
    "    ``live_batch_bytes``: batches, results of ``map``, and tensors of variables and programs.\n"      \
    "    ``live_view_bytes``: descriptions of tuples.\n"                                                   \
    "    ``live_file_bytes``: data that was read or decompressed from files.\n"                            \
    "    ``live_mapped_bytes``: files that are mapped into memory.\n"                                      \
    "    ``live_buffers``: the number of buffers that all of these consist of.\n"                          \
    "    ``pinned_bytes``, ``device_bytes``: pinned host memory and memory of devices, in use and idle.\n" \
    "    ``shared_bytes``: the rings that worker processes write to.\n"                                    \
    "    ``idle_bytes``: memory that is kept for the next tuples.\n"

#define PUSH_DOC                                                                                             \
    "push($self, arrays, /, *, copy=True, timeout=None, pass_id=None)\n--\n\n"                               \
    "Push a tuple of arrays; wait while the queue is full.\n\n"                                              \
    "Parameters\n"                                                                                           \
    "----------\n"                                                                                           \
    "arrays : tuple, list or dict\n"                                                                         \
    "    One array for each slot: a NumPy array, an object in CPU memory with the buffer protocol,\n"        \
    "    ``__array_interface__`` or DLPack, or a `LoDTensor`. Slots whose first dimension is -1 must\n"      \
    "    have the same number of rows. Numbers of Python take the dtype of their slot. Text and bytes "      \
    "become\n"                                                                                               \
    "    uint8; for a slot with a level of offsets, they are one sequence. If the slots have names, a dict " \
    "with\n"                                                                                                 \
    "    these keys may be pushed.\n"                                                                        \
    "copy : bool\n"                                                                                          \
    "    If False, the queue borrows the arrays instead of copying them. They must be contiguous and\n"      \
    "    must not change until the consumer has released them. NumPy arrays are read-only until then.\n"     \
    "timeout : float, optional\n"                                                                            \
    "    Seconds to wait for room. None: for ever; 0: not at all.\n"                                         \
    "pass_id : int, optional\n"                                                                              \
    "    The number of the pass that the tuple belongs to, see `wait_pass`. None: the current pass.\n\n"     \
    "Raises\n"                                                                                               \
    "------\n"                                                                                               \
    "ShapeError, DTypeError, ByteOrderError, SlotCountError, TooLargeError\n"                                \
    "    The tuple does not fit the queue. The message says what was expected, what was found, and in\n"     \
    "    which slot. Nothing is queued.\n"                                                                   \
    "QueueClosed\n"                                                                                          \
    "    The queue takes no more tuples, or was closed while this call waited.\n"                            \
    "Timeout\n"                                                                                              \
    "    There was no room in time.\n"

#define POP_DOC                                                                                            \
    "pop($self, timeout=None)\n--\n\n"                                                                     \
    "Take the oldest tuple; wait while the queue is empty.\n\n"                                            \
    "Returns\n"                                                                                            \
    "-------\n"                                                                                            \
    "tuple of numpy.ndarray\n"                                                                             \
    "    Views of the queue's memory, one for each slot. The queue reuses the memory when the last view\n" \
    "    is gone. A slot with levels of detail (LoD, ragged offsets) is a `LoDTensor`. Arrays that were\n" \
    "    pushed without a copy are read-only. A queue whose place is a `CUDAPlace` returns a\n"            \
    "    `DeviceArray` for each slot.\n\n"                                                                 \
    "Raises\n"                                                                                             \
    "------\n"                                                                                             \
    "EndOfData\n"                                                                                          \
    "    The queue was closed and is empty.\n"                                                             \
    "Timeout\n"                                                                                            \
    "    No tuple arrived in time.\n"                                                                      \
    "Exception\n"                                                                                          \
    "    The exception of the producer, if it failed the queue, after the last tuple that was pushed.\n"

#define RESERVE_DOC                                                                                      \
    "reserve($self, rows=None, *, shapes=None, lod=None, timeout=None, pass_id=None)\n--\n\n"            \
    "Reserve a tuple in memory of the queue, to be written in place.\n\n"                                \
    "The result is a context manager, for one use. Entering it waits for room and returns a tuple of\n"  \
    "writable arrays with arbitrary contents. Leaving it queues the tuple; leaving it by an exception\n" \
    "drops the tuple. After that the arrays are read-only, and their memory belongs to the consumer.\n"  \
    "The queue reuses the memory when the last reference to the arrays is gone. So a loop over large\n"  \
    "tuples should ``del`` its names after the block.\n\n"                                               \
    "Parameters\n"                                                                                       \
    "----------\n"                                                                                       \
    "rows : int, optional\n"                                                                             \
    "    The size of first dimensions of -1.\n"                                                          \
    "shapes : sequence of shapes, optional\n"                                                            \
    "    The shape of every slot, for slots that have -1 in other dimensions.\n"                         \
    "lod : sequence, optional\n"                                                                         \
    "    The LoD (ragged offsets) of every slot: its levels of offsets, or none.\n"                      \
    "timeout, pass_id\n"                                                                                 \
    "    As for `push`.\n\n"                                                                             \
    "Examples\n"                                                                                         \
    "--------\n"                                                                                         \
    ">>> from pyfeed import Scope, py_array_reader\n"                                                    \
    ">>> reader, queue = py_array_reader(4, [(-1, 2)], dtypes=['float32'], scope=Scope())\n"             \
    ">>> with queue.reserve(3) as (x,):\n"                                                               \
    "...     x[:] = 7\n"                                                                                 \
    ">>> float(queue.pop()[0].sum())\n"                                                                  \
    "42.0\n"

#define CLOSE_DOC                                                                                   \
    "close($self, pass_id=None)\n--\n\n"                                                            \
    "End the pass: pushes raise `QueueClosed`; tuples that are queued are still delivered.\n\n"     \
    "Parameters\n"                                                                                  \
    "----------\n"                                                                                  \
    "pass_id : int, optional\n"                                                                     \
    "    The number of the pass to end. If it is not the current one, nothing happens. None: the\n" \
    "    current pass.\n"

#define REOPEN_DOC                                                                                     \
    "reopen($self)\n--\n\n"                                                                            \
    "Begin the next pass: drop the tuples that are still queued, and take tuples again.\n\n"           \
    "A push that began before raises `QueueClosed`, and a pop that began before raises `EndOfData`.\n" \
    "Neither sees the new pass.\n\n"                                                                   \
    "Returns\n"                                                                                        \
    "-------\n"                                                                                        \
    "int\n"                                                                                            \
    "    The number of tuples that were dropped.\n"

#define WAIT_PASS_DOC                                                                                  \
    "wait_pass($self, after, timeout=None)\n--\n\n"                                                    \
    "Wait until a pass with a number above `after` is open; for producers that can start over.\n\n"    \
    "Parameters\n"                                                                                     \
    "----------\n"                                                                                     \
    "after : int or None\n"                                                                            \
    "    The pass that the producer has finished. None: it has finished none.\n"                       \
    "timeout : float, optional\n"                                                                      \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n"                                          \
    "Returns\n"                                                                                        \
    "-------\n"                                                                                        \
    "int\n"                                                                                            \
    "    The number of the pass, as the ``pass_id`` of pushes. Once the consumer resets the reader,\n" \
    "    pushes with this number raise `QueueClosed`.\n"

#define SHUTDOWN_DOC          \
    "shutdown($self)\n--\n\n" \
    "Close the queue for good and drop its tuples; every call that waits wakes up.\n"

#define STATS_DOC                                                                                        \
    "stats($self)\n--\n\n"                                                                               \
    "Report the state of the queue at one moment.\n\n"                                                   \
    "Returns\n"                                                                                          \
    "-------\n"                                                                                          \
    "dict\n"                                                                                             \
    "    ``size``, ``capacity`` and ``reserved`` (being written), in tuples; ``bytes`` and\n"            \
    "    ``bytes_limit``; ``pass_id``, from 0, None before the first pass of a restartable queue;\n"     \
    "    ``closed``, ``failed``, ``shut_down``, ``restartable``; ``waiting_producers`` and\n"            \
    "    ``waiting_consumers``, in threads. Since the queue was made: ``pushed``, ``popped``,\n"         \
    "    ``dropped`` and ``pushed_bytes``; ``producers_waited`` and ``consumers_waited``, in seconds,\n" \
    "    summed over threads.\n"

#define CURRENT_PASS_DOC                                                                                \
    "current_pass($self)\n--\n\n"                                                                       \
    "Return an iterator over the rest of the current pass, which never begins another pass.\n\n"        \
    "Any number of threads may each loop over such an iterator: every tuple goes to one of them, and\n" \
    "all of them end with the pass. The iterator also continues where another loop was left. After a\n" \
    "`reset` it raises `Cancelled`.\n\n"                                                                \
    "Examples\n"                                                                                        \
    "--------\n"                                                                                        \
    ">>> from pyfeed import random_data\n"                                                              \
    ">>> reader = random_data([(2,)], count=5)\n"                                                       \
    ">>> for batch in reader:\n"                                                                        \
    "...     break\n"                                                                                   \
    ">>> sum(1 for batch in reader.current_pass())\n"                                                   \
    "4\n"

#define PUT_DOC                                                                                       \
    "put($self, arrays, /, *, timeout=None)\n--\n\n"                                                  \
    "Copy a tuple of arrays to the place, as the newest one; wait while the buffer is full.\n\n"      \
    "Parameters\n"                                                                                    \
    "----------\n"                                                                                    \
    "arrays : tuple or list\n"                                                                        \
    "    As for `PyArrayFeedQueue.push`. Tuples may have different slots.\n"                          \
    "timeout : float, optional\n"                                                                     \
    "    Seconds to wait for room. None: for ever; 0: not at all.\n\n"                                \
    "Raises\n"                                                                                        \
    "------\n"                                                                                        \
    "ShapeError, DTypeError, ByteOrderError, SlotCountError\n"                                        \
    "    The arrays are no valid tuple. The message says what was expected, what was found, and in\n" \
    "    which slot.\n"                                                                               \
    "TooLargeError\n"                                                                                 \
    "    The tuple alone is larger than ``bytes_limit``.\n"                                           \
    "Timeout\n"                                                                                       \
    "    There was no room in time.\n"

#define GET_DOC                                                                                         \
    "get($self, timeout=None)\n--\n\n"                                                                  \
    "Take the oldest tuple; wait while the buffer is empty.\n\n"                                        \
    "Parameters\n"                                                                                      \
    "----------\n"                                                                                      \
    "timeout : float, optional\n"                                                                       \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n"                                           \
    "Returns\n"                                                                                         \
    "-------\n"                                                                                         \
    "tuple of numpy.ndarray\n"                                                                          \
    "    Views of the buffer's memory, one for each slot. The buffer reuses the memory when the last\n" \
    "    view is gone. A slot with levels of detail (LoD, ragged offsets) is a `LoDTensor`. A buffer\n" \
    "    of a device returns a `DeviceArray` for each slot.\n\n"                                        \
    "Raises\n"                                                                                          \
    "------\n"                                                                                          \
    "Timeout\n"                                                                                         \
    "    No tuple arrived in time.\n"

#define CLEAR_DOC                                                                                     \
    "clear($self)\n--\n\n"                                                                            \
    "Drop all tuples in the buffer, and return their memory to the system.\n\n"                       \
    "The buffer stays in use: a `put` that waits for room gets it; a `get` that waits continues to\n" \
    "wait.\n\n"                                                                                       \
    "Returns\n"                                                                                       \
    "-------\n"                                                                                       \
    "int\n"                                                                                           \
    "    The number of tuples that were dropped.\n"

#define BUFFER_STATS_DOC                                                                               \
    "stats($self)\n--\n\n"                                                                             \
    "Report the state of the buffer at one moment.\n\n"                                                \
    "Returns\n"                                                                                        \
    "-------\n"                                                                                        \
    "dict\n"                                                                                           \
    "    ``size``, ``capacity`` and ``reserved`` (being written), in tuples; ``bytes`` and\n"          \
    "    ``bytes_limit``; ``waiting_producers`` and ``waiting_consumers``, in threads. Since the\n"    \
    "    buffer was made: ``put``, ``got``, ``dropped`` and ``put_bytes``; ``producers_waited`` and\n" \
    "    ``consumers_waited``, in seconds, summed over threads.\n"

#define DEVICE_ARRAY_DOC                                                                                 \
    "An array in the memory of a CUDA device: a slot of a tuple from a queue or reader of a "            \
    "`CUDAPlace`.\n\n"                                                                                   \
    "The copy to the device may still be in progress; the host does not wait for it. Other libraries\n"  \
    "take the array by DLPack, without a copy, and make their stream wait for it:\n"                     \
    "``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)``, ``jax.dlpack.from_dlpack(x)``. `use` does the\n" \
    "same for a stream of your own.\n\n"                                                                 \
    "The memory is reused when two conditions hold: all arrays of the tuple, and all DLPack tensors\n"   \
    "made from them, are gone or released; and the work submitted until then to the streams that use\n"  \
    "them has finished. As with any GPU array, do not destroy a stream while an array that it uses is\n" \
    "alive.\n\n"                                                                                         \
    "The array also has ``__cuda_array_interface__``. That waits on the host for the copy, and cannot\n" \
    "tell which stream will use the array: call ``use(stream)`` or ``release(stream)``.\n\n"             \
    "``len()`` is the first dimension. Shape, dtype and the like can be read after `release` as well.\n"

#define USE_DOC                                                                                           \
    "use($self, stream, /)\n--\n\n"                                                                       \
    "Make a stream wait until the array is on its device; the host does not wait.\n\n"                    \
    "The memory is overwritten only after the stream has finished the work that was submitted to it\n"    \
    "before the tuple is released.\n\n"                                                                   \
    "Parameters\n"                                                                                        \
    "----------\n"                                                                                        \
    "stream : int or object with ``__cuda_stream__``\n"                                                   \
    "    A ``CUstream`` of the array's device. 0 and 1 are the legacy default stream, 2 is the default\n" \
    "    stream of the calling thread.\n\n"                                                               \
    "Raises\n"                                                                                            \
    "------\n"                                                                                            \
    "StateError\n"                                                                                        \
    "    The array was released, or the stream is being captured into a graph. The capture stays\n"       \
    "    intact: use the array before the capture.\n"

#define RELEASE_DOC                                                                                   \
    "release($self, stream=None)\n--\n\n"                                                             \
    "Release the array; the memory is reused when all arrays of its tuple are released.\n\n"          \
    "A second call does nothing. DLPack tensors that were made from the array keep the memory.\n\n"   \
    "Parameters\n"                                                                                    \
    "----------\n"                                                                                    \
    "stream : int or object with ``__cuda_stream__``, optional\n"                                     \
    "    A stream that uses the array, as for `use`: the memory is not overwritten before the work\n" \
    "    submitted to that stream so far has finished. None: the streams of `use` and DLPack only.\n"

#define SYNCHRONIZE_DOC                                       \
    "synchronize($self, timeout=None)\n--\n\n"                \
    "Wait on the host until the array is on its device.\n\n"  \
    "Parameters\n"                                            \
    "----------\n"                                            \
    "timeout : float, optional\n"                             \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n" \
    "Raises\n"                                                \
    "------\n"                                                \
    "Timeout\n"                                               \
    "    The array was not there in time.\n"

#define NUMPY_DOC                                                  \
    "numpy($self)\n--\n\n"                                         \
    "Copy the array to the host, and wait until that is done.\n\n" \
    "Returns\n"                                                    \
    "-------\n"                                                    \
    "numpy.ndarray\n"                                              \
    "    A new array with the same dtype and shape.\n"

#define READ_DOC                                                                 \
    "read($self, timeout=None)\n--\n\n"                                          \
    "Read the next tuple.\n\n"                                                   \
    "Parameters\n"                                                               \
    "----------\n"                                                               \
    "timeout : float, optional\n"                                                \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n"                    \
    "Returns\n"                                                                  \
    "-------\n"                                                                  \
    "tuple of numpy.ndarray\n"                                                   \
    "    As from `PyArrayFeedQueue.pop`.\n\n"                                    \
    "Raises\n"                                                                   \
    "------\n"                                                                   \
    "EndOfData\n"                                                                \
    "    The pass is over. A ``for`` loop ends instead.\n"                       \
    "Timeout\n"                                                                  \
    "    No tuple arrived in time. No tuple is lost: the next call continues.\n" \
    "Cancelled\n"                                                                \
    "    The reader was reset while this call waited.\n"                         \
    "Exception\n"                                                                \
    "    The exception of the producer, after the last tuple that was pushed.\n"

#define HAS_NEXT_DOC                                                                              \
    "has_next($self, timeout=None)\n--\n\n"                                                       \
    "Say whether this pass has another tuple; it reads one tuple ahead, and may wait for it.\n\n" \
    "Parameters\n"                                                                                \
    "----------\n"                                                                                \
    "timeout : float, optional\n"                                                                 \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n"                                     \
    "Returns\n"                                                                                   \
    "-------\n"                                                                                   \
    "bool\n"                                                                                      \
    "    If True, the next read of this reader gets the tuple, in whichever thread.\n\n"          \
    "Raises\n"                                                                                    \
    "------\n"                                                                                    \
    "Timeout\n"                                                                                   \
    "    The answer was not known in time.\n"

#define RESET_DOC                                                                                        \
    "reset($self)\n--\n\n"                                                                               \
    "Begin the next pass, at any time.\n\n"                                                              \
    "A read that waits in another thread, and a loop in progress, raise `Cancelled`. The next ``for``\n" \
    "goes through the new pass.\n\n"                                                                     \
    "Raises\n"                                                                                           \
    "------\n"                                                                                           \
    "StateError\n"                                                                                       \
    "    The data cannot start over. The message says what to do instead.\n"

#define ERASE_DOC                                                           \
    "erase($self, name, /)\n--\n\n"                                         \
    "Remove a variable from this scope, and drop its content.\n\n"          \
    "Parameters\n"                                                          \
    "----------\n"                                                          \
    "name : str\n"                                                          \
    "    The name of a variable in this scope itself, not in a parent.\n\n" \
    "Raises\n"                                                              \
    "------\n"                                                              \
    "NotFoundError\n"                                                       \
    "    There is no such variable.\n"

#define KIND_DOC                                                          \
    "kind($self, name, /)\n--\n\n"                                        \
    "Say what a variable contains.\n\n"                                   \
    "Parameters\n"                                                        \
    "----------\n"                                                        \
    "name : str\n"                                                        \
    "    The name of a variable in this scope or one of its parents.\n\n" \
    "Returns\n"                                                           \
    "-------\n"                                                           \
    "str\n"                                                               \
    "    ``'empty'``, ``'tensor'``, ``'queue'`` or ``'reader'``.\n\n"     \
    "Raises\n"                                                            \
    "------\n"                                                            \
    "NotFoundError\n"                                                     \
    "    There is no such variable.\n"

#define GET_TENSOR_DOC                                                           \
    "get_tensor($self, name, /)\n--\n\n"                                         \
    "Return a read-only view of the tensor in a variable.\n\n"                   \
    "The view stays valid and unchanged when the variable is written later.\n\n" \
    "Parameters\n"                                                               \
    "----------\n"                                                               \
    "name : str\n"                                                               \
    "    The name of a variable in this scope or one of its parents.\n\n"        \
    "Returns\n"                                                                  \
    "-------\n"                                                                  \
    "numpy.ndarray, LoDTensor or DeviceArray\n"                                  \
    "    A `DeviceArray` if the tensor is on a device.\n\n"                      \
    "Raises\n"                                                                   \
    "------\n"                                                                   \
    "NotFoundError\n"                                                            \
    "    There is no such variable.\n"                                           \
    "StateError\n"                                                               \
    "    The variable contains no tensor.\n"

#define SET_TENSOR_DOC                                                                                   \
    "set_tensor($self, name, array, /)\n--\n\n"                                                          \
    "Copy an array into a variable, in place of its content.\n\n"                                        \
    "Parameters\n"                                                                                       \
    "----------\n"                                                                                       \
    "name : str\n"                                                                                       \
    "    The name of the variable. It is made in this scope if neither the scope nor a parent has it.\n" \
    "array : numpy.ndarray, LoDTensor or any array as for `PyArrayFeedQueue.push`\n"

#define SCOPE_READ_DOC                                                                             \
    "read($self, reader, outs, timeout=None)\n--\n\n"                                              \
    "Read the next tuple of a reader into variables: the read operator.\n\n"                       \
    "It moves the tensors without a copy.\n\n"                                                     \
    "Parameters\n"                                                                                 \
    "----------\n"                                                                                 \
    "reader : str\n"                                                                               \
    "    The name of the reader's variable.\n"                                                     \
    "outs : sequence of str\n"                                                                     \
    "    The names of the variables, one for each slot. A variable that does not exist is made.\n" \
    "timeout : float, optional\n"                                                                  \
    "    Seconds to wait. None: for ever; 0: not at all.\n\n"                                      \
    "Raises\n"                                                                                     \
    "------\n"                                                                                     \
    "EndOfData\n"                                                                                  \
    "    The pass is over; the variables stay as they are.\n"                                      \
    "SlotCountError\n"                                                                             \
    "    The numbers of slots and outputs differ; the tuple stays with the reader.\n"              \
    "NotFoundError, StateError\n"                                                                  \
    "    There is no variable of that name, or it contains no reader.\n"                           \
    "Timeout\n"                                                                                    \
    "    No tuple arrived in time.\n"

#define CANCEL_TOKEN_DOC                                                                                  \
    "CancelToken()\n--\n\n"                                                                               \
    "Ends runs of programs from another thread: give it to `Executor.run`.\n\n"                           \
    "One token serves any number of runs. Once it is cancelled, it stays cancelled: every run with the\n" \
    "token, in progress or later, raises `Cancelled`.\n"

#define CANCEL_DOC          \
    "cancel($self)\n--\n\n" \
    "End the runs that have this token. Any thread may call this; a second call does nothing.\n"

#endif
