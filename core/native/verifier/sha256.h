// SHA-256, with the instructions of the processor where it has them.
#ifndef TWINSTORE_VERIFIER_SHA256_H
#define TWINSTORE_VERIFIER_SHA256_H

#include "buffer.h"

// Works off whole blocks of 64 bytes.
typedef void (*Blocks)(u32 state[8], const u8 *bytes, size_t blocks);

Blocks sha256_blocks(void);
void sha256_portable(u32 state[8], const u8 *bytes, size_t blocks);
void sha256(Blocks blocks, const u8 *bytes, size_t size, u8 digest[32]);

extern const u32 sha256_constants[64];

#endif
