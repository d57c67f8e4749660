/* CRC-32C by the instructions of x86-64 processors.
 *
 * A checksum is the remainder of a polynomial over GF(2): the data, as one very long number, modulo P. Bits are
 * reflected, that is, the lowest bit of a byte is its highest power; x^0 in a word of 32 bits is bit 31. Three facts
 * are all there is to it:
 *
 * - The instruction crc32 takes 8 bytes into a state. It waits three cycles for itself, but three that do not need
 *   each other run at the same time.
 * - A carry-less product is one of polynomials. Data that stand n bits before other data may be replaced by their
 *   product with x^n mod P, added to those ("folding"): the remainder is the same. So registers full of data run over
 *   the buffer without any remainder being made; at the end, crc32 makes the one of the register that is left.
 * - The state before some data is added to their first 32 bits, and so is part of them.
 *
 * Two 64-bit words of reflected bits give a product that is short by a factor x, as it has only 127 bits. Factors are
 * made one power smaller for that (`factor_of_64`); those of 32-bit words likewise (`factor_of_32`).
 *
 * Each function is compiled for what it uses and is not called unless the processor has it: no flags for the compiler.
 */

#ifndef BARNABAS_CRC32C_KERNELS_H
#define BARNABAS_CRC32C_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && ((defined(__GNUC__) && __GNUC__ >= 9) || (defined(__clang__) && __clang_major__ >= 9))
#define CRC32C_X86 1
#include <immintrin.h>
#endif

/* Takes bytes into a state, which is the complement of a checksum. */
typedef uint32_t (*crc32c_kernel)(uint32_t state, const uint8_t *data, size_t size);

#define CRC32C_POLYNOMIAL 0x82F63B78u

static uint32_t crc32c_product(uint32_t first, uint32_t second) {
    uint32_t result = 0, power;
    for (power = 1u << 31; power; power >>= 1) {
        if (first & power)
            result ^= second;
        second = (second >> 1) ^ (second & 1 ? CRC32C_POLYNOMIAL : 0);
    }
    return result;
}

/* x^exponent mod P */
static uint32_t crc32c_power(uint64_t exponent) {
    uint32_t result = 1u << 31, square = 1u << 30;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = crc32c_product(result, square);
        square = crc32c_product(square, square);
    }
    return result;
}

/* x^1, x^2, x^4, x^8 and so on, each the square of the one before. The 32nd is x again. */
static const uint32_t crc32c_squares[31] = {
    0x40000000u, 0x20000000u, 0x08000000u, 0x00800000u, 0x00008000u, 0x82F63B78u, 0x6EA2D55Cu, 0x18B8EA18u,
    0x510AC59Au, 0xB82BE955u, 0xB8FDB1E7u, 0x88E56F72u, 0x74C360A4u, 0xE4172B16u, 0x0D65762Au, 0x35D73A62u,
    0x28461564u, 0xBF455269u, 0xE2EA32DCu, 0xFE7740E6u, 0xF946610Bu, 0x3C204F8Fu, 0x538586E3u, 0x59726915u,
    0x734D5309u, 0xBC1AC763u, 0x7D0722CCu, 0xD289CABEu, 0xE94CA9BCu, 0x05B74F3Fu, 0xA51E1F42u,
};

/* The checksum of two pieces, one after the other, from those of each; size is that of the second. Each byte that
 * follows multiplies what was before it by x^8. */
static uint32_t crc32c_combined(uint32_t first, uint32_t second, uint64_t size) {
    unsigned at = 3;
    for (; size; size >>= 1) {
        if (size & 1)
            first = crc32c_product(crc32c_squares[at], first);
        at = at == 30 ? 0 : at + 1;
    }
    return first ^ second;
}

#ifdef CRC32C_X86

/* An interleaved round: so many times 64 bytes by products, beside three times 16 bytes by crc32. */
#define CRC32C_LONG_ROUND 72
#define CRC32C_SHORT_ROUND 9
#define CRC32C_ROUND_BYTES(steps) ((steps) * (64 + 3 * 16))

/* For an aligned start to pay. */
#define CRC32C_LONG 1024

typedef struct {
    /* What the first and the second half of a 128-bit word are multiplied by to move it so many bits. */
    uint64_t by_128[2], by_256[2], by_384[2], by_512[2], by_1024[2], by_1536[2], by_2048[2];
    /* For the states of a round's parts that have one, two, three times `16 * steps` bytes behind them. */
    uint64_t long_round[3], short_round[3];
} crc32c_factors;

static crc32c_factors crc32c_x;

static uint64_t crc32c_factor_of_64(unsigned bits) {
    return (uint64_t) crc32c_power(bits - 1) << 32;
}

/* Of a state: the product becomes one of 64 bits, which crc32 moves by another 32 while it takes the remainder. */
static uint64_t crc32c_factor_of_32(unsigned bits) {
    return crc32c_power(bits - 33);
}

static void crc32c_make_factors(void) {
    struct {
        uint64_t *pair;
        unsigned bits;
    } folds[] = {{crc32c_x.by_128, 128},   {crc32c_x.by_256, 256},   {crc32c_x.by_384, 384},  {crc32c_x.by_512, 512},
                 {crc32c_x.by_1024, 1024}, {crc32c_x.by_1536, 1536}, {crc32c_x.by_2048, 2048}};
    size_t index;
    for (index = 0; index < sizeof folds / sizeof folds[0]; index++) {
        folds[index].pair[0] = crc32c_factor_of_64(folds[index].bits + 64);
        folds[index].pair[1] = crc32c_factor_of_64(folds[index].bits);
    }
    for (index = 0; index < 3; index++) {
        crc32c_x.long_round[index] = crc32c_factor_of_32((unsigned) (index + 1) * 16 * 8 * CRC32C_LONG_ROUND);
        crc32c_x.short_round[index] = crc32c_factor_of_32((unsigned) (index + 1) * 16 * 8 * CRC32C_SHORT_ROUND);
    }
}

static inline uint64_t crc32c_word(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* --- the instruction alone, for what is too short for anything else --- */

__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(
    uint32_t state, const uint8_t *data, size_t size
) {
    uint64_t wide = state;
    for (; size >= 8; data += 8, size -= 8)
        wide = _mm_crc32_u64(wide, crc32c_word(data));
    state = (uint32_t) wide;
    if (size & 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        state = _mm_crc32_u32(state, word);
        data += 4;
    }
    if (size & 2) {
        uint16_t word;
        memcpy(&word, data, 2);
        state = _mm_crc32_u16(state, word);
        data += 2;
    }
    if (size & 1)
        state = _mm_crc32_u8(state, *data);
    return state;
}

/* --- words of 128 bits --- */

#define CRC32C_SSE __attribute__((target("sse4.2,pclmul")))

CRC32C_SSE static inline __m128i crc32c_folded(__m128i word, __m128i factors, __m128i next) {
    __m128i first = _mm_clmulepi64_si128(word, factors, 0x00), second = _mm_clmulepi64_si128(word, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

CRC32C_SSE static inline __m128i crc32c_pair(const uint64_t *pair) {
    return _mm_loadu_si128((const __m128i *) pair);
}

CRC32C_SSE static inline uint32_t crc32c_of_word(__m128i word) {
    return (uint32_t) _mm_crc32_u64(
        _mm_crc32_u64(0, (uint64_t) _mm_cvtsi128_si64(word)), (uint64_t) _mm_extract_epi64(word, 1)
    );
}

/* Four words that follow each other. */
CRC32C_SSE static inline uint32_t crc32c_of_words(__m128i a, __m128i b, __m128i c, __m128i d) {
    __m128i factors = crc32c_pair(crc32c_x.by_128);
    return crc32c_of_word(crc32c_folded(crc32c_folded(crc32c_folded(a, factors, b), factors, c), factors, d));
}

CRC32C_SSE static inline __m128i crc32c_load(const uint8_t *data) {
    return _mm_loadu_si128((const __m128i *) data);
}

/* 64 bytes a step by products and, in the same step, 16 bytes of each of the three parts behind them by crc32. */
CRC32C_SSE static inline uint32_t crc32c_round(
    uint32_t state, const uint8_t *data, size_t steps, const uint64_t *factors
) {
    const uint8_t *p = data + 64 * steps, *q = p + 16 * steps, *r = q + 16 * steps;
    __m128i by_512 = crc32c_pair(crc32c_x.by_512), products;
    __m128i a = _mm_xor_si128(crc32c_load(data), _mm_cvtsi32_si128((int) state));
    __m128i b = crc32c_load(data + 16), c = crc32c_load(data + 32), d = crc32c_load(data + 48);
    uint64_t first = 0, second = 0, third = 0;
    size_t step;
    for (step = 0;;) {
        first = _mm_crc32_u64(_mm_crc32_u64(first, crc32c_word(p)), crc32c_word(p + 8));
        second = _mm_crc32_u64(_mm_crc32_u64(second, crc32c_word(q)), crc32c_word(q + 8));
        third = _mm_crc32_u64(_mm_crc32_u64(third, crc32c_word(r)), crc32c_word(r + 8));
        if (++step == steps)
            break;
        p += 16, q += 16, r += 16, data += 64;
        a = crc32c_folded(a, by_512, crc32c_load(data));
        b = crc32c_folded(b, by_512, crc32c_load(data + 16));
        c = crc32c_folded(c, by_512, crc32c_load(data + 32));
        d = crc32c_folded(d, by_512, crc32c_load(data + 48));
    }
    state = crc32c_of_words(a, b, c, d);
    products = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int) state), _mm_cvtsi64_si128((long long) factors[2]), 0);
    products = _mm_xor_si128(
        products, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long) first), _mm_cvtsi64_si128((long long) factors[1]), 0)
    );
    products = _mm_xor_si128(
        products,
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long) second), _mm_cvtsi64_si128((long long) factors[0]), 0)
    );
    return (uint32_t) (_mm_crc32_u64(0, (uint64_t) _mm_cvtsi128_si64(products)) ^ third);
}

CRC32C_SSE static uint32_t crc32c_by_words(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= CRC32C_ROUND_BYTES(CRC32C_LONG_ROUND); size -= CRC32C_ROUND_BYTES(CRC32C_LONG_ROUND)) {
        state = crc32c_round(state, data, CRC32C_LONG_ROUND, crc32c_x.long_round);
        data += CRC32C_ROUND_BYTES(CRC32C_LONG_ROUND);
    }
    for (; size >= CRC32C_ROUND_BYTES(CRC32C_SHORT_ROUND); size -= CRC32C_ROUND_BYTES(CRC32C_SHORT_ROUND)) {
        state = crc32c_round(state, data, CRC32C_SHORT_ROUND, crc32c_x.short_round);
        data += CRC32C_ROUND_BYTES(CRC32C_SHORT_ROUND);
    }
    if (size >= 128) {
        __m128i by_512 = crc32c_pair(crc32c_x.by_512);
        __m128i a = _mm_xor_si128(crc32c_load(data), _mm_cvtsi32_si128((int) state));
        __m128i b = crc32c_load(data + 16), c = crc32c_load(data + 32), d = crc32c_load(data + 48);
        for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
            a = crc32c_folded(a, by_512, crc32c_load(data));
            b = crc32c_folded(b, by_512, crc32c_load(data + 16));
            c = crc32c_folded(c, by_512, crc32c_load(data + 32));
            d = crc32c_folded(d, by_512, crc32c_load(data + 48));
        }
        state = crc32c_of_words(a, b, c, d);
    }
    return crc32c_by_instruction(state, data, size);
}

/* --- words of 512 bits, four 128-bit ones in each --- */

#define CRC32C_AVX512 __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

CRC32C_AVX512 static inline __m512i crc32c_folded_wide(__m512i word, __m512i factors, __m512i next) {
    __m512i first = _mm512_clmulepi64_epi128(word, factors, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(word, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96); /* the sum of all three */
}

CRC32C_AVX512 static inline __m512i crc32c_pair_wide(const uint64_t *pair) {
    return _mm512_broadcast_i32x4(crc32c_pair(pair));
}

CRC32C_AVX512 static inline __m512i crc32c_load_wide(const uint8_t *data) {
    return _mm512_loadu_si512((const void *) data);
}

CRC32C_AVX512 static inline __m512i crc32c_begin_wide(uint32_t state, const uint8_t *data) {
    return _mm512_xor_si512(crc32c_load_wide(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int) state)));
}

CRC32C_AVX512 static uint32_t crc32c_by_wide_words(uint32_t state, const uint8_t *data, size_t size) {
    __m512i word, by_512;
    __m128i left;
    if (size < 128)
        return crc32c_by_instruction(state, data, size);
    if (size >= CRC32C_LONG) {
        /* Loads that lie on two lines of the cache take twice the time. */
        size_t head = (size_t) (-(uintptr_t) data & 63);
        __m512i by_2048 = crc32c_pair_wide(crc32c_x.by_2048), b, c, d;
        state = crc32c_by_instruction(state, data, head);
        data += head, size -= head;
        word = crc32c_begin_wide(state, data);
        b = crc32c_load_wide(data + 64), c = crc32c_load_wide(data + 128), d = crc32c_load_wide(data + 192);
        for (data += 256, size -= 256; size >= 256; data += 256, size -= 256) {
            word = crc32c_folded_wide(word, by_2048, crc32c_load_wide(data));
            b = crc32c_folded_wide(b, by_2048, crc32c_load_wide(data + 64));
            c = crc32c_folded_wide(c, by_2048, crc32c_load_wide(data + 128));
            d = crc32c_folded_wide(d, by_2048, crc32c_load_wide(data + 192));
        }
        d = crc32c_folded_wide(word, crc32c_pair_wide(crc32c_x.by_1536), d);
        d = crc32c_folded_wide(b, crc32c_pair_wide(crc32c_x.by_1024), d);
        word = crc32c_folded_wide(c, crc32c_pair_wide(crc32c_x.by_512), d);
    } else {
        word = crc32c_begin_wide(state, data);
        data += 64, size -= 64;
    }
    by_512 = crc32c_pair_wide(crc32c_x.by_512);
    for (; size >= 64; data += 64, size -= 64)
        word = crc32c_folded_wide(word, by_512, crc32c_load_wide(data));
    left = _mm512_extracti32x4_epi32(word, 3);
    left = crc32c_folded(_mm512_castsi512_si128(word), crc32c_pair(crc32c_x.by_384), left);
    left = crc32c_folded(_mm512_extracti32x4_epi32(word, 1), crc32c_pair(crc32c_x.by_256), left);
    left = crc32c_folded(_mm512_extracti32x4_epi32(word, 2), crc32c_pair(crc32c_x.by_128), left);
    return crc32c_by_instruction(crc32c_of_word(left), data, size);
}

#endif

typedef struct {
    const char *name;
    crc32c_kernel kernel;
} crc32c_choice;

/* Those that this processor can run, the best one first; returns how many, at most CRC32C_CHOICES. */
#define CRC32C_CHOICES 2

static int crc32c_choices(crc32c_choice *choices) {
    int count = 0;
#ifdef CRC32C_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        crc32c_make_factors();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
            choices[count++] = (crc32c_choice) {"avx512", crc32c_by_wide_words};
        choices[count++] = (crc32c_choice) {"pclmul", crc32c_by_words};
    }
#else
    (void) choices;
#endif
    return count;
}

#endif
