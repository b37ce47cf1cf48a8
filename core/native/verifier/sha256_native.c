// The same by the instructions that most processors of today have for it, found when it runs.
#include "verifier/sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

#define SSSE3 (1u << 9)
#define SSE41 (1u << 19)
#define SHA (1u << 29)

static int has_instructions(void) {
  u32 a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & SSSE3) || !(c & SSE41)) return 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & SHA);
}

// Four rounds; the instruction takes two, with the constants added to the words.
#define ROUNDS(at, words)                                                                               \
  do {                                                                                                  \
    __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)(sha256_constants + 4 * (at)))); \
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);                                                      \
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));                             \
  } while (0)

// Four more words from the sixteen before them: `a` becomes them.
#define EXTEND(a, b, c, d)                                                                                  \
  a = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4)), d)

__attribute__((target("sha,sse4.1,ssse3"))) static void native_blocks(u32 state[8], const u8 *bytes, size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
  __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  for (; blocks; blocks--, bytes += 64) {
    __m128i before_abef = abef, before_cdgh = cdgh, w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(bytes + 16 * i)), order);
    for (int i = 0; i < 4; i++) ROUNDS(i, w[i]);
    for (int i = 4; i < 16; i += 4) {
      EXTEND(w[0], w[1], w[2], w[3]);
      ROUNDS(i, w[0]);
      EXTEND(w[1], w[2], w[3], w[0]);
      ROUNDS(i + 1, w[1]);
      EXTEND(w[2], w[3], w[0], w[1]);
      ROUNDS(i + 2, w[2]);
      EXTEND(w[3], w[0], w[1], w[2]);
      ROUNDS(i + 3, w[3]);
    }
    abef = _mm_add_epi32(abef, before_abef);
    cdgh = _mm_add_epi32(cdgh, before_cdgh);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

Blocks sha256_blocks(void) { return has_instructions() ? native_blocks : sha256_portable; }

#else

Blocks sha256_blocks(void) { return sha256_portable; }

#endif
