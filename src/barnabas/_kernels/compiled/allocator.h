/* The C library's allocator, where it has these calls: glibc. */
#pragma once
#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>

static inline int allocator_trim(void) { return malloc_trim(0); }

static inline int allocator_use_one_arena(void) { return mallopt(M_ARENA_MAX, 1); }

#else

static inline int allocator_trim(void) { return 0; }

static inline int allocator_use_one_arena(void) { return 0; }

#endif
