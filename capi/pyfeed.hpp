// pyfeed for C++17: pyfeed.h with owners, exceptions and iteration. Header only.
//
// The following holds for every class, except where its comment says otherwise:
//
// - Ownership.  Scope, Variable, Queue, Producer, StagingBuffer, Reader and CancelToken are counted handles:
//               a copy adds a reference, as of a std::shared_ptr. Tuple, Reservation, Writer,
//               RegisteredFormat and Trace have one owner and can be moved. TensorView and Span own nothing:
//               they are valid as long as the memory that they view.
// - Errors.     A status other than PF_OK throws the class of that status; all of them derive from Error. The
//               end of the data is no error: next() and pop() return an empty optional, and a loop ends. Only
//               a run of a program throws an error at the end of the data: EndOfData.
// - Threads.    Any number of threads may use a handle, or copies of it, at the same time. An object must not
//               be assigned to while another thread uses that object.
// - Blocking.   Only functions that take a Wait wait for data, room or another thread. A default Wait waits
//               for ever.
// - Signals.    Install signal handlers by sigaction with SA_ONSTACK: see pyfeed.h.
// - Callbacks.  An exception of a callback does not cross the library. An exception of a poll function leaves
//               the call that polled. An exception of the function of a map reader, of a format or of a
//               kernel is a ProducerError for the consumer. Release functions must not throw.
#ifndef PYFEED_HPP
#define PYFEED_HPP

#include "pyfeed/cuda.hpp"
#include "pyfeed/dlpack.hpp"
#include "pyfeed/error.hpp"
#include "pyfeed/format.hpp"
#include "pyfeed/library.hpp"
#include "pyfeed/queue.hpp"
#include "pyfeed/reader.hpp"
#include "pyfeed/scope.hpp"
#include "pyfeed/staging.hpp"
#include "pyfeed/tensor.hpp"
#include "pyfeed/trace.hpp"
#include "pyfeed/tuple.hpp"
#include "pyfeed/types.hpp"
#include "pyfeed/wait.hpp"

#endif  // PYFEED_HPP
