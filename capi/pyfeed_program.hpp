// Programs for C++17: a whole training loop as operators over variables. A program is built here or in
// Python, can be saved, and runs without Python. Header only. The rules of pyfeed.hpp hold for these classes
// too, and:
//
// - Ownership.  Program and Executor are counted handles. RegisteredKernel has one owner and can be moved.
//               Objects that act until the end of a C++ scope (ProgramGuard, unique_name::Guard, While,
//               IfElse and their blocks) cannot be moved and belong to the thread that made them.
// - Building.   The functions of pyfeed::layers add operators to the current block of the thread's main
//               program. Operators that make readers, and the initial values of persistable variables, go to
//               its startup program; their variables are known in both. If an operator is refused, the
//               function throws and adds nothing.
// - Kernels.    A kernel runs on the thread that runs the program. An exception of a kernel is a
//               ProducerError for the caller of the run, also if that caller is written in another language.
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
