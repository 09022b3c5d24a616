// pyfeed for C++17: pyfeed.h with owners, exceptions and iteration. Header only.
//
// What holds for every class, unless its comment says otherwise:
//
// - Ownership.  Scope, Variable, Queue, StagingBuffer, Reader and CancelToken are counted handles: a copy is one
//               count more, like a std::shared_ptr. Tuple, Reservation, Writer, RegisteredFormat and Trace have one
//               owner and move. TensorView and Span own nothing: they are good as long as what they look at.
// - Errors.     A status other than PF_OK throws the class of that status, all of them under Error. The
//               end of the data is no error: next() and pop() answer an empty optional, a loop ends. A
//               program that reads on has failed: EndOfData.
// - Threads.    Handles may be used from any thread at the same time; so may two copies of one handle. A
//               single object must not be assigned to while another thread uses it.
// - Blocking.   Only what takes a Wait blocks. Without one it waits for ever.
// - Nothing thrown by a callback crosses the library: poll functions hand their exception to the call that
//               polled; what the function of a map reader or a format throws is its consumer's
//               ProducerError; release functions must not throw.
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
