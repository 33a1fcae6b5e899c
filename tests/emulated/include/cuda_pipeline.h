/* cuda_pipeline.h: copies to shared memory, which the emulated device makes when a thread waits for
 * them: a kernel that reads too early finds what was there before. */
#ifndef EMULATED_CUDA_PIPELINE_H
#define EMULATED_CUDA_PIPELINE_H

#include <stddef.h>

namespace emulated
{
void copy_later(void *to, const void *from, size_t bytes);
void end_copies(void);               /* of a group */
void wait_for_copies(unsigned left); /* but those of the `left` newest groups */
} // namespace emulated

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes)
{
    emulated::copy_later(to, from, bytes);
}
inline void __pipeline_commit(void)
{
    emulated::end_copies();
}
inline void __pipeline_wait_prior(unsigned left)
{
    emulated::wait_for_copies(left);
}

#endif
