#include "verifier/sha256.h"

#include "verifier/verifier.h"

#define BLOCK 64
#define LENGTH 8 // bytes at the end of the last block, which tell how many bits there were

const u32 sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const u32 FIRST[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static u32 rotated(u32 value, int bits) { return value >> bits | value << (32 - bits); }

static u32 word(const u8 *bytes) {
  return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

static void schedule(u32 words[64], const u8 *bytes) {
  for (int i = 0; i < 16; i++) words[i] = word(bytes + 4 * i);
  for (int i = 16; i < 64; i++) {
    u32 low = words[i - 15], high = words[i - 2];
    u32 first = rotated(low, 7) ^ rotated(low, 18) ^ low >> 3;
    u32 second = rotated(high, 17) ^ rotated(high, 19) ^ high >> 10;
    words[i] = words[i - 16] + first + words[i - 7] + second;
  }
}

// One round; the next one takes the state turned by one place.
#define ROUND(a, b, c, d, e, f, g, h, at)                                                                      \
  do {                                                                                                         \
    u32 first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g)) +                 \
                sha256_constants[at] + words[at];                                                              \
    d += first;                                                                                                \
    h = first + (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));             \
  } while (0)

static void portable_block(u32 state[8], const u8 *bytes) {
  u32 words[64], a = state[0], b = state[1], c = state[2], d = state[3];
  u32 e = state[4], f = state[5], g = state[6], h = state[7];
  schedule(words, bytes);
  for (int i = 0; i < 64; i += 8) {
    ROUND(a, b, c, d, e, f, g, h, i);
    ROUND(h, a, b, c, d, e, f, g, i + 1);
    ROUND(g, h, a, b, c, d, e, f, i + 2);
    ROUND(f, g, h, a, b, c, d, e, i + 3);
    ROUND(e, f, g, h, a, b, c, d, i + 4);
    ROUND(d, e, f, g, h, a, b, c, i + 5);
    ROUND(c, d, e, f, g, h, a, b, i + 6);
    ROUND(b, c, d, e, f, g, h, a, i + 7);
  }
  const u32 after[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) state[i] += after[i];
}

void sha256_portable(u32 state[8], const u8 *bytes, size_t blocks) {
  for (; blocks; blocks--, bytes += BLOCK) portable_block(state, bytes);
}

// The last blocks: what is left, one bit, and the number of bits at the end.
static void finish(Blocks blocks, u32 state[8], const u8 *rest, size_t left, u64 size) {
  u8 last[2 * BLOCK] = {0};
  memcpy(last, rest, left);
  last[left] = 0x80;
  size_t count = left + 1 + LENGTH > BLOCK ? 2 : 1;
  u64 bits = size * 8;
  for (int i = 0; i < LENGTH; i++) last[count * BLOCK - 1 - i] = (u8)(bits >> 8 * i);
  blocks(state, last, count);
}

void sha256(Blocks blocks, const u8 *bytes, size_t size, u8 digest[32]) {
  u32 state[8];
  memcpy(state, FIRST, sizeof state);
  size_t whole = size / BLOCK;
  if (whole) blocks(state, bytes, whole);
  u8 none = 0;
  finish(blocks, state, size ? bytes + whole * BLOCK : &none, size % BLOCK, size);
  for (int i = 0; i < 32; i++) digest[i] = (u8)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void ts_sha256(const u8 *bytes, size_t size, u8 *digest, int portable) {
  sha256(portable ? sha256_portable : sha256_blocks(), bytes, size, digest);
}
