// Programs for C++17: a whole training loop as operators over variables, built here or in Python, saved, and
// run with no Python. Header only. What holds for the classes of pyfeed.hpp holds for these, and:
//
// - Ownership.  Program and Executor are counted handles. RegisteredKernel has one owner and moves. What
//               lasts for a scope (ProgramGuard, unique_name::Guard, While, IfElse and their blocks) stays
//               where it was made, on the thread that made it.
// - Building.   The functions of pyfeed::layers add operators to the current block of the thread's main
//               program. Those that make readers, and the initial values of what persists, go to its startup
//               program; what they make is known in both. One that is refused throws, and is not there.
// - Kernels.    They run on the thread that runs the program. What one throws is a ProducerError for the
//               caller of the run, in whatever language that is.
#ifndef PYFEED_PROGRAM_HPP
#define PYFEED_PROGRAM_HPP

#include "pyfeed.hpp"
#include "pyfeed/attributes.hpp"
#include "pyfeed/control.hpp"
#include "pyfeed/executor.hpp"
#include "pyfeed/kernel.hpp"
#include "pyfeed/layers.hpp"
#include "pyfeed/program.hpp"

#endif  // PYFEED_PROGRAM_HPP
