/* Blocks of memory that are needed again and again, for a moment each.
 *
 * The C library gives large blocks back to the system when they are freed, and fresh memory is expensive: the system
 * clears every page of it when it is first touched, which takes several times as long as to write a page. So a few
 * blocks are kept here for whoever comes next. At most RECYCLED_BYTES are kept in all; blocks have a size that is a power
 * of two, and somebody gets one that is at most four times as large as need be.
 *
 * A slot is empty or holds a block, and changes from one to the other by an atomic exchange: who has taken a block out
 * of its slot is the only one who has it. So there is no lock, and none is needed without the GIL either.
 */

#ifndef BARNABAS_RECYCLED_MEMORY_H
#define BARNABAS_RECYCLED_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

#define RECYCLED_SLOTS 32
#define RECYCLED_BYTES ((size_t) 16 << 20)
/* What is smaller than the first is in good hands at the C library; larger than the last, too large to keep. */
#define RECYCLED_LEAST ((size_t) 16 << 10)
#define RECYCLED_MOST ((size_t) 4 << 20)

#if defined(__GNUC__) || defined(__clang__)
#define RECYCLED_ATOMICS 1
#endif

typedef union {
    size_t capacity; /* what there is behind this, 0 if it is not to be kept */
    char alignment[64];
} recycled_block;

static recycled_block *recycled_slots[RECYCLED_SLOTS];
static size_t recycled_held;

static void *recycled_take(size_t size) {
    size_t capacity = 0;
    recycled_block *block;
    if (size > (size_t) -1 - sizeof(recycled_block))
        return NULL;
#ifdef RECYCLED_ATOMICS
    if (size >= RECYCLED_LEAST && size <= RECYCLED_MOST) {
        int slot;
        for (capacity = RECYCLED_LEAST; capacity < size; capacity <<= 1)
            ;
        for (slot = 0; slot < RECYCLED_SLOTS; slot++) {
            recycled_block *nothing = NULL;
            if (!__atomic_load_n(&recycled_slots[slot], __ATOMIC_RELAXED))
                continue;
            block = __atomic_exchange_n(&recycled_slots[slot], NULL, __ATOMIC_ACQUIRE);
            if (!block)
                continue;
            if (block->capacity >= capacity && block->capacity <= 4 * capacity) {
                __atomic_sub_fetch(&recycled_held, block->capacity, __ATOMIC_RELAXED);
                return block + 1;
            }
            if (!__atomic_compare_exchange_n(
                    &recycled_slots[slot], &nothing, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED
                )) {
                __atomic_sub_fetch(&recycled_held, block->capacity, __ATOMIC_RELAXED);
                free(block);
            }
        }
        size = capacity;
    }
#endif
    block = (recycled_block *) malloc(sizeof(recycled_block) + size);
    if (!block)
        return NULL;
    block->capacity = capacity;
    return block + 1;
}

static void recycled_give(void *memory) {
    recycled_block *block;
    if (!memory)
        return;
    block = (recycled_block *) memory - 1;
#ifdef RECYCLED_ATOMICS
    if (block->capacity) {
        size_t capacity = block->capacity; /* of a block in a slot nothing is known: somebody may have taken it */
        if (__atomic_add_fetch(&recycled_held, capacity, __ATOMIC_RELAXED) <= RECYCLED_BYTES) {
            int slot;
            for (slot = 0; slot < RECYCLED_SLOTS; slot++) {
                recycled_block *nothing = NULL;
                if (__atomic_compare_exchange_n(
                        &recycled_slots[slot], &nothing, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED
                    ))
                    return;
            }
        }
        __atomic_sub_fetch(&recycled_held, capacity, __ATOMIC_RELAXED);
    }
#endif
    free(block);
}

#endif
