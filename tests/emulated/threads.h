/* threads.h: a launch on the emulated device. */
#ifndef EMULATED_THREADS_H
#define EMULATED_THREADS_H

#include "device_language.h"

#include <functional>

namespace emulated
{
enum { BLOCK_THREADS_MAX = 1024, BLOCK_BYTES_MAX = 227 * 1024 };

/* Runs every block of a grid, one after the other, in an order that differs from launch to launch. */
void run_grid(const std::function<void()> &call, dim3 grid, dim3 block);

/* Ends the program: a kernel does what a device need not survive. */
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace emulated

#endif
